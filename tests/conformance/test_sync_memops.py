"""Memory with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: its synchronous operations always wait."""

import ctypes

import pytest

from .client import INVALID_VALUE, blocks

MEMORY_TYPE, SYNC_MEMOPS = 2, 6
BLOCKING = 0


def sync_memops(client, address):
    value = ctypes.c_uint(77)
    client.ok("cuPointerGetAttribute", ctypes.byref(value), SYNC_MEMOPS, address)
    return value.value


def put(client, address, value, attribute=SYNC_MEMOPS):
    return client.call(
        "cuPointerSetAttribute", ctypes.byref(ctypes.c_uint(value)), attribute, address
    )


@pytest.fixture
def memory(client):
    address = client.device(64)
    assert put(client, address + 8, 1) == 0
    return address


def test_it_can_be_asked_for(client, memory):
    assert sync_memops(client, client.device(64)) == 0
    assert sync_memops(client, memory) == 1
    assert put(client, memory, 0) == 0
    assert sync_memops(client, memory) == 0


def test_refused(client, memory):
    assert put(client, memory, 1, MEMORY_TYPE) == INVALID_VALUE
    assert put(client, 16, 1) == INVALID_VALUE
    assert client.call("cuPointerSetAttribute", None, SYNC_MEMOPS, memory) == INVALID_VALUE


def test_synchronous_operations_wait(client, memory):
    other = client.device(64)
    pageable = ctypes.create_string_buffer(64)
    for name, *arguments in [
        ("cuMemsetD8_v2", memory, 1, 64),
        ("cuMemcpyDtoD_v2", memory, other, 64),
        ("cuMemcpyDtoD_v2", other, memory, 64),
        ("cuMemcpyHtoD_v2", memory, pageable, 64),
    ]:
        gate = client.gate().hold(client.stream(BLOCKING))
        assert blocks(client, gate, name, *arguments)


def test_asynchronous_operations_do_not(client, memory):
    stream = client.stream()
    gate = client.gate().hold(stream)
    assert not blocks(client, gate, "cuMemcpyDtoDAsync_v2", memory, memory + 32, 32, stream)
