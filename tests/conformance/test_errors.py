"""Errors for wrong arguments, and calls that work without a context."""

import ctypes
import threading

import pytest

from .client import (
    ALREADY_REGISTERED,
    CONTEXT_IS_DESTROYED,
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_VALUE,
    NOT_REGISTERED,
    OUT_OF_MEMORY,
    SUCCESS,
)


def test_device_ordinal(client):
    assert client.call("cuDeviceGet", ctypes.byref(ctypes.c_int()), 99) == INVALID_DEVICE


def test_allocation_sizes(client):
    address = ctypes.c_uint64()
    assert client.call("cuMemAlloc_v2", ctypes.byref(address), 0) == INVALID_VALUE
    assert client.call("cuMemAlloc_v2", ctypes.byref(address), 1 << 60) == OUT_OF_MEMORY
    assert client.call("cuMemHostAlloc", ctypes.byref(address), 0, 0) == SUCCESS
    assert client.call("cuMemAllocManaged", ctypes.byref(address), 4096, 99) == INVALID_VALUE


def test_copies_stay_inside_their_allocation(client):
    address = client.device(4096)
    data = ctypes.create_string_buffer(8192)
    assert client.call("cuMemcpyHtoD_v2", address, data, 8192) == INVALID_VALUE
    assert client.call("cuMemcpyHtoD_v2", address, data, 0) == SUCCESS
    assert client.call("cuMemcpyHtoD_v2", 16, data, 16) == INVALID_VALUE
    assert client.call("cuMemcpyDtoD_v2", 0, 0, 16) == INVALID_VALUE


def test_frees(client):
    address = client.device(4096)
    assert client.call("cuMemFree_v2", address + 8) == INVALID_VALUE
    assert client.call("cuMemFree_v2", 16) == INVALID_VALUE
    assert client.call("cuMemFree_v2", 0) == SUCCESS
    assert client.call("cuMemFreeHost", None) == SUCCESS
    assert client.call("cuMemFreeHost", ctypes.create_string_buffer(64)) == INVALID_VALUE
    assert client.call("cuMemFreeHost", address) == INVALID_VALUE
    client.forget("cuMemFree_v2", address)
    assert client.call("cuMemFree_v2", address) == SUCCESS
    assert client.call("cuMemFree_v2", address) == INVALID_VALUE


def test_copy_into_freed_memory(client):
    address = client.device(8 << 20)
    client.forget("cuMemFree_v2", address)
    client.ok("cuMemFree_v2", address)
    data = ctypes.create_string_buffer(16)
    assert client.call("cuMemcpyHtoD_v2", address, data, 16) == INVALID_VALUE


def test_registration(client):
    buffer = ctypes.create_string_buffer(3 * 4096)
    start = (ctypes.addressof(buffer) + 4095) // 4096 * 4096
    client.ok("cuMemHostRegister_v2", start, 4096, 0)
    assert client.call("cuMemHostRegister_v2", start, 4096, 0) == ALREADY_REGISTERED
    assert client.call("cuMemHostUnregister", start + 8) == INVALID_VALUE
    assert client.call("cuMemHostRegister_v2", client.host(64), 64, 0) == INVALID_VALUE
    client.ok("cuMemHostUnregister", start)
    assert client.call("cuMemHostUnregister", start) == NOT_REGISTERED


def test_pointer_attributes_of_unknown_memory(client):
    buffer = ctypes.create_string_buffer(64)
    address = ctypes.addressof(buffer)
    value = ctypes.c_int(-9)
    for attribute in (2, 9):  # MEMORY_TYPE and DEVICE_ORDINAL
        assert client.call("cuPointerGetAttribute", ctypes.byref(value), attribute, address) == 1
        assert value.value == -9
    kinds = (ctypes.c_int * 1)(2)
    results = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    assert client.call("cuPointerGetAttributes", 1, kinds, results, address) == SUCCESS
    assert value.value == 0
    kinds = (ctypes.c_int * 2)(4, 11)  # HOST_POINTER and RANGE_START_ADDR
    values = (ctypes.c_uint64 * 2)(7, 7)
    results = (ctypes.c_void_p * 2)(ctypes.addressof(values), ctypes.addressof(values) + 8)
    client.ok("cuPointerGetAttributes", 2, kinds, results, address)
    assert list(values) == [address, 7]


def test_unknown_pointer_attributes(client):
    address, value = client.device(64), ctypes.c_int(-9)
    kinds = (ctypes.c_int * 2)(2, 99)
    results = (ctypes.c_void_p * 2)(ctypes.addressof(value), ctypes.addressof(value))
    assert client.call("cuPointerGetAttributes", 2, kinds, results, address) == INVALID_VALUE
    assert value.value == 2  # attributes before the unknown one are answered
    results[0] = None
    assert client.call("cuPointerGetAttributes", 1, kinds, results, address) == INVALID_VALUE


@pytest.mark.parametrize(
    "kind, memory_type, managed", [("device", 2, 0), ("host", 1, 0), ("managed", 2, 1)]
)
def test_pointer_attributes(client, kind, memory_type, managed):
    address = getattr(client, kind)(4096)

    def attribute(number, kind=ctypes.c_int):
        value = kind()
        client.ok("cuPointerGetAttribute", ctypes.byref(value), number, address + 100)
        return value.value

    assert attribute(2) == memory_type
    assert attribute(8) == managed
    assert attribute(9) == 0
    assert attribute(1, ctypes.c_uint64) == client.lib.primary
    assert attribute(11, ctypes.c_uint64) == address
    assert attribute(12, ctypes.c_size_t) == 4096
    host = ctypes.c_uint64()
    status = client.call("cuPointerGetAttribute", ctypes.byref(host), 4, address + 100)
    if kind == "device":
        assert status == INVALID_VALUE
    else:
        assert (status, host.value) == (SUCCESS, address + 100)


def test_without_context(client):
    handle = ctypes.c_void_p()
    address = client.device(64)
    found = []

    def call():  # a new thread has no current context, unlike this one
        found.extend(
            [
                client.call("cuMemAlloc_v2", ctypes.byref(handle), 64),
                client.call("cuStreamCreate", ctypes.byref(handle), 0),
                client.call("cuEventCreate", ctypes.byref(handle), 0),
                client.call("cuMemFree_v2", 16),
                client.call("cuMemFree_v2", address),
            ]
        )

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    client.forget("cuMemFree_v2", address)
    assert found == [INVALID_CONTEXT, INVALID_CONTEXT, INVALID_CONTEXT, INVALID_VALUE, SUCCESS]


@pytest.mark.cuda_software
def test_destroyed_twice(software, client):
    stream, event = client.stream(), client.event()
    for name, handle, again in (
        ("cuStreamDestroy_v2", stream, INVALID_CONTEXT),
        ("cuEventDestroy_v2", event, CONTEXT_IS_DESTROYED),
    ):
        client.forget(name, handle)
        assert client.call(name, handle) == SUCCESS
        assert client.call(name, handle) == again


def test_prefetch(client):
    stream = client.stream()
    client.ok("cuMemPrefetchAsync", client.managed(65536), 65536, 0, stream)
    assert client.call("cuMemPrefetchAsync", client.device(4096), 4096, 0, stream) == INVALID_VALUE


def test_error_texts(client):
    text = ctypes.c_char_p()
    client.ok("cuGetErrorName", 700, ctypes.byref(text))
    assert text.value == b"CUDA_ERROR_ILLEGAL_ADDRESS"
    client.ok("cuGetErrorString", 1, ctypes.byref(text))
    assert text.value
    assert client.call("cuGetErrorName", 12345, ctypes.byref(text)) == INVALID_VALUE
