"""Stream capture in global (0) and relaxed (2) mode: allowed calls, and how a capture ends."""

import ctypes

import pytest

from .captures import ACTIVE, Capture, broken, intact
from .client import (
    CAPTURE_IMPLICIT,
    CAPTURE_INVALIDATED,
    CAPTURE_ISOLATION,
    CAPTURE_UNJOINED,
    CAPTURE_UNSUPPORTED,
    CAPTURED_EVENT,
    ILLEGAL_STATE,
    INVALID_VALUE,
    SUCCESS,
)


def test_nothing(capture):
    assert intact(capture)


def test_end_without_begin(client):
    graph = ctypes.c_void_p()
    stream = client.stream()
    assert client.call("cuStreamEndCapture", stream, ctypes.byref(graph)) == ILLEGAL_STATE


@pytest.mark.parametrize("name", ["cuStreamQuery", "cuStreamSynchronize"])
def test_captured_stream_cannot_be_waited_for(client, capture, name):
    assert client.call(name, capture.stream) == CAPTURE_UNSUPPORTED
    assert broken(capture)


def test_context_cannot_be_synchronized(client, capture):
    assert client.call("cuCtxSynchronize") == CAPTURE_UNSUPPORTED
    assert broken(capture)


@pytest.mark.parametrize("what", ["alloc", "free", "host", "other stream"])
def test_unsafe_calls(client, capture, mode, what):
    address = ctypes.c_uint64()
    if what == "alloc":
        status = client.call("cuMemAlloc_v2", ctypes.byref(address), 64)
        undo = "cuMemFree_v2"
    elif what == "free":
        status = client.call("cuMemFree_v2", capture.device)
        if status == SUCCESS:
            client.forget("cuMemFree_v2", capture.device)
    elif what == "host":
        status = client.call("cuMemHostAlloc", ctypes.byref(address), 64, 0)
        undo = "cuMemFreeHost"
    else:
        status = client.call("cuStreamSynchronize", capture.other)
    if mode == 0:
        assert status == CAPTURE_UNSUPPORTED
        assert broken(capture)
    else:
        assert status == SUCCESS
        assert intact(capture)
    if address.value:
        client.ok(undo, address.value)


def test_captured_event(client, capture):
    client.ok("cuEventRecord", capture.event, capture.stream)
    assert client.call("cuEventQuery", capture.event) == CAPTURED_EVENT
    assert broken(capture)
    assert client.call("cuEventQuery", capture.event) == INVALID_VALUE


def test_objects_can_be_made(client, capture):
    client.event()
    client.stream()
    assert intact(capture)


@pytest.mark.parametrize("flags", [0, 1], ids=["blocking", "non-blocking"])
def test_legacy_work(client, mode, flags):
    capture = Capture(client, mode, flags)
    status = client.call("cuMemsetD8Async", capture.device, 0, 64, None)
    if flags == 0:
        assert status == CAPTURE_IMPLICIT
        assert broken(capture)
    else:
        assert status == SUCCESS
        assert intact(capture)


def test_synchronous_copy_is_not_captured(client, capture):
    data = ctypes.create_string_buffer(64)
    client.ok("cuMemcpyHtoD_v2", capture.device, data, 64)
    assert intact(capture)


def test_captured_work_does_not_run(client, capture):
    data = ctypes.create_string_buffer(b"\x05" * 64, 64)
    client.ok("cuMemcpyHtoD_v2", capture.device, bytes(64), 64)
    client.ok("cuMemcpyHtoDAsync_v2", capture.device, data, 64, capture.stream)
    client.ok("cuMemcpyHtoDAsync_v2", capture.device, capture.locked, 64, capture.stream)
    client.ok("cuMemsetD8Async", capture.device, 7, 64, capture.stream)
    assert intact(capture)
    assert client.read(capture.device, 64) == bytes(64)


def test_work_after_invalidation(client, capture):
    assert client.call("cuStreamQuery", capture.stream) == CAPTURE_UNSUPPORTED
    status = client.call("cuMemsetD8Async", capture.device, 7, 64, capture.stream)
    assert status == CAPTURE_INVALIDATED
    assert broken(capture)


@pytest.mark.parametrize("join", [False, True])
def test_forked_stream_must_be_joined(client, capture, join):
    client.ok("cuEventRecord", capture.event, capture.stream)
    client.ok("cuStreamWaitEvent", capture.other, capture.event, 0)
    client.ok("cuMemsetD8Async", capture.device, 7, 64, capture.other)
    if join:
        client.ok("cuEventRecord", capture.event, capture.other)
        client.ok("cuStreamWaitEvent", capture.stream, capture.event, 0)
        assert intact(capture)
    else:
        assert capture.status() == ACTIVE
        assert capture.end() == CAPTURE_UNJOINED


def test_only_the_origin_ends(client, capture):
    client.ok("cuEventRecord", capture.event, capture.stream)
    client.ok("cuStreamWaitEvent", capture.other, capture.event, 0)
    graph = ctypes.c_void_p()
    assert client.call("cuStreamEndCapture", capture.other, ctypes.byref(graph)) == 903
    assert broken(capture)


def test_wait_for_uncaptured_event(client, capture):
    client.ok("cuEventRecord", capture.event, capture.other)
    status = client.call("cuStreamWaitEvent", capture.stream, capture.event, 0)
    assert status == CAPTURE_ISOLATION
    assert broken(capture)


def test_stream_ordered_allocation(client, capture):
    address = ctypes.c_uint64()
    client.ok("cuMemAllocAsync", ctypes.byref(address), 4096, capture.stream)
    client.ok("cuMemsetD8Async", address, 7, 4096, capture.stream)
    client.ok("cuMemFreeAsync", address, capture.stream)
    assert intact(capture)


def test_host_function_needs_a_function(client, capture):
    assert client.call("cuLaunchHostFunc", capture.stream, None, None) == INVALID_VALUE
    assert intact(capture)


def test_exchanged_mode_permits_unsafe_calls(client):
    capture = Capture(client, 0)
    mode = ctypes.c_int(2)
    client.ok("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        assert mode.value == 0
        client.device(64)
    finally:
        client.ok("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    assert intact(capture)


@pytest.mark.cuda_software  # a real driver may crash when the handle is used
def test_destroyed_stream_is_captured_to_the_end(client, capture):
    client.forget("cuStreamDestroy_v2", capture.stream)
    client.ok("cuStreamDestroy_v2", capture.stream)
    assert capture.status() == ACTIVE
    assert capture.end() == SUCCESS


def test_pageable_copy_is_captured(client, capture):
    data = ctypes.create_string_buffer(64)
    client.ok("cuMemcpyHtoDAsync_v2", capture.device, data, 64, capture.stream)
    assert intact(capture)
