"""The bytes that copies and fills write, and when they read host memory."""

import ctypes

import pytest

from .client import INVALID_VALUE, SUCCESS

PORTABLE, DEVICEMAP = 1, 2


def test_round_trip(client):
    data = bytes(range(256)) * 16
    first, second = client.device(4096), client.device(4096)
    client.write(first, data)
    client.ok("cuMemcpyDtoD_v2", second, first, 4096)
    assert client.read(second, 4096) == data


def test_fills(client):
    target = client.device(4096)
    client.ok("cuMemsetD8_v2", target, 1, 4096)
    client.ok("cuMemsetD16_v2", target + 16, 0x0203, 2)
    client.ok("cuMemsetD32_v2", target + 32, 0x04050607, 2)
    data = client.read(target, 48)
    assert data[:16] == b"\x01" * 16
    assert data[16:24] == b"\x03\x02" * 2 + b"\x01" * 4
    assert data[32:44] == b"\x07\x06\x05\x04" * 2 + b"\x01" * 4


def test_fill_of_rows(client):
    target = client.device(64)
    client.ok("cuMemsetD8_v2", target, 0, 64)
    client.ok("cuMemsetD2D32_v2", target, 16, 0x01010101, 2, 4)
    assert client.read(target, 64) == (b"\x01" * 8 + b"\x00" * 8) * 4
    client.ok("cuMemsetD2D8_v2", target, 0, 0, 0, 4)
    assert client.call("cuMemsetD2D32_v2", target, 16, 0, 2, 5) == INVALID_VALUE


def test_fill_must_be_aligned(client):
    target = client.device(64)
    assert client.call("cuMemsetD32_v2", target + 2, 0, 4) == INVALID_VALUE


def test_pageable_source_is_free_at_return(client):
    stream, target = client.stream(), client.device(4096)
    data = ctypes.create_string_buffer(b"\x05" * 4096, 4096)
    client.ok("cuMemcpyHtoDAsync_v2", target, data, 4096, stream)
    ctypes.memset(data, 6, 4096)
    assert client.read(target, 4096) == b"\x05" * 4096


def test_locked_source_is_read_by_the_stream(client):
    stream, target, source = client.stream(), client.device(4096), client.host(4096, 5)
    gate = client.gate().hold(stream)
    client.ok("cuMemcpyHtoDAsync_v2", target, source, 4096, stream)
    ctypes.memset(source, 6, 4096)
    gate.open()
    assert client.read(target, 4096) == b"\x06" * 4096


def test_streams_are_in_order(client):
    stream, first, second = client.stream(), client.device(4096), client.device(4096)
    back = client.host(4096)
    for value in range(20):
        client.ok("cuMemsetD8Async", first, value, 4096, stream)
        client.ok("cuMemcpyDtoDAsync_v2", second, first, 4096, stream)
    client.ok("cuMemcpyDtoHAsync_v2", back, second, 4096, stream)
    assert client.finish(stream) == SUCCESS
    assert ctypes.string_at(back, 4096) == bytes([19]) * 4096


@pytest.mark.parametrize("join", ["event", "legacy"])
def test_order_across_streams(client, join):
    flags = 0 if join == "legacy" else 1
    writer, reader, event = client.stream(flags), client.stream(flags), client.event()
    target, back = client.device(4096), client.host(4096)
    gate = client.gate().hold(writer)
    client.ok("cuMemsetD8Async", target, 3, 4096, writer)
    if join == "event":
        client.ok("cuEventRecord", event, writer)
        client.ok("cuStreamWaitEvent", reader, event, 0)
    else:
        client.ok("cuMemsetD8Async", target + 1, 3, 1, None)
    client.ok("cuMemcpyDtoHAsync_v2", back, target, 4096, reader)
    gate.open()
    client.ok("cuStreamSynchronize", reader)
    assert ctypes.string_at(back, 4096) == b"\x03" * 4096


def test_value_written_by_a_stream(client):
    stream, flag = client.stream(), client.host(4)
    client.ok("cuStreamWriteValue32_v2", stream, flag, 77, 0)
    client.ok("cuStreamSynchronize", stream)
    assert ctypes.c_uint32.from_address(flag).value == 77
    assert client.call("cuStreamWaitValue32_v2", stream, 16, 1, 0) == INVALID_VALUE


def test_stream_waits_for_another_streams_value(client):
    first, second, flag = client.stream(), client.stream(), client.device(4)
    client.write(flag, bytes(4))
    client.ok("cuStreamWaitValue32_v2", first, flag, 1, 0)
    client.ok("cuStreamWriteValue32_v2", second, flag, 1, 0)
    client.ok("cuStreamSynchronize", first)


def test_stream_ordered_memory(client):
    stream, address = client.stream(), ctypes.c_uint64()
    client.ok("cuMemAllocAsync", ctypes.byref(address), 4096, stream)
    client.ok("cuMemsetD8Async", address, 4, 4096, stream)
    back = client.host(4096)
    client.ok("cuMemcpyDtoHAsync_v2", back, address, 4096, stream)
    client.ok("cuMemFreeAsync", address, stream)
    client.ok("cuStreamSynchronize", stream)
    assert ctypes.string_at(back, 4096) == b"\x04" * 4096


@pytest.mark.parametrize("flags", [0, PORTABLE, DEVICEMAP, PORTABLE | DEVICEMAP])
def test_flags_of_page_locked_memory(client, flags):
    """The memory is large, because a driver may put small allocations into one piece of memory.

    This piece then has the flags of its first allocation.
    """
    value = ctypes.c_uint()
    address = client._make("cuMemFreeHost", ctypes.c_void_p, "cuMemHostAlloc", 4 << 20, flags)
    client.ok("cuMemHostGetFlags", ctypes.byref(value), address)
    assert value.value | DEVICEMAP == flags | DEVICEMAP
    block = ctypes.create_string_buffer(3 * 4096)
    start = (ctypes.addressof(block) + 4095) // 4096 * 4096
    client.ok("cuMemHostRegister_v2", start, 4096, flags)
    client.ok("cuMemHostGetFlags", ctypes.byref(value), start + 100)
    assert value.value | DEVICEMAP == flags | DEVICEMAP
    pointer = ctypes.c_uint64()
    client.ok("cuMemHostGetDevicePointer_v2", ctypes.byref(pointer), start + 100, 0)
    assert pointer.value == start + 100
    client.ok("cuMemHostUnregister", start)


def test_flags_of_what_is_not_page_locked(client):
    value = ctypes.c_uint()
    block = ctypes.create_string_buffer(64)
    assert client.call("cuMemHostGetFlags", ctypes.byref(value), block) == INVALID_VALUE
    assert client.call("cuMemHostGetFlags", None, client.host(64)) == INVALID_VALUE
    assert client.call("cuMemHostRegister_v2", block, 64, 1 << 10) == INVALID_VALUE
