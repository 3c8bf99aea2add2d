"""Events: snapshots, re-recording, timing."""

import ctypes
import time

from .client import DISABLE_TIMING, INVALID_HANDLE, NOT_READY, SUCCESS, poll


def elapsed(client, start, end):
    value = ctypes.c_float()
    return client.call("cuEventElapsedTime", ctypes.byref(value), start, end), value.value


def test_never_recorded_is_complete(client):
    event, other = client.event(), client.event()
    assert client.call("cuEventQuery", event) == SUCCESS
    assert client.call("cuEventSynchronize", event) == SUCCESS
    assert client.call("cuStreamWaitEvent", client.stream(), event, 0) == SUCCESS
    assert elapsed(client, event, other)[0] == INVALID_HANDLE


def test_pending(client):
    stream, start, end = client.stream(), client.event(), client.event()
    client.ok("cuEventRecord", start, stream)
    client.gate().hold(stream)
    client.ok("cuEventRecord", end, stream)
    assert client.call("cuEventQuery", end) == NOT_READY
    assert client.call("cuStreamQuery", stream) == NOT_READY
    assert elapsed(client, start, end)[0] == NOT_READY


def test_wait_is_a_snapshot(client):
    busy, idle, waiting, event = (
        client.stream(),
        client.stream(),
        client.stream(),
        client.event(),
    )
    gate = client.gate().hold(busy)
    client.ok("cuEventRecord", event, busy)
    client.ok("cuStreamWaitEvent", waiting, event, 0)
    client.ok("cuEventRecord", event, idle)
    assert poll(lambda: client.call("cuEventQuery", event)) == SUCCESS
    assert client.call("cuStreamQuery", waiting) == NOT_READY
    gate.open()
    assert client.finish(waiting) == SUCCESS


def test_timing(client):
    stream, start, end = client.stream(), client.event(), client.event()
    began = time.monotonic()
    client.ok("cuEventRecord", start, stream)
    assert poll(lambda: client.call("cuEventQuery", start)) == SUCCESS
    gate = client.gate().hold(stream)
    client.ok("cuEventRecord", end, stream)
    time.sleep(0.02)
    gate.open()
    client.ok("cuEventSynchronize", end)
    status, milliseconds = elapsed(client, start, end)
    assert status == SUCCESS
    assert 15 < milliseconds < 1000 * (time.monotonic() - began) + 1


def test_timing_disabled(client):
    stream, start, end = client.stream(), client.event(DISABLE_TIMING), client.event()
    client.ok("cuEventRecord", start, stream)
    client.ok("cuEventRecord", end, stream)
    client.ok("cuStreamSynchronize", stream)
    assert elapsed(client, start, end)[0] == INVALID_HANDLE


def test_destroyed_while_pending(client):
    stream, event = client.stream(), client.event()
    gate = client.gate().hold(stream)
    client.ok("cuEventRecord", event, stream)
    client.forget("cuEventDestroy_v2", event)
    client.ok("cuEventDestroy_v2", event)
    gate.open()
    client.ok("cuStreamSynchronize", stream)
