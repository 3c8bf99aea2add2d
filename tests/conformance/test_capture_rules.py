"""Stream capture: threads, merges, external events, memory, dependencies."""

import ctypes
import threading
import time

import pytest
from limits import PATIENCE

from .captures import ACTIVE, NONE, Capture, broken, intact
from .client import (
    CAPTURE_INVALIDATED,
    CAPTURE_UNJOINED,
    CAPTURE_UNSUPPORTED,
    CAPTURED_EVENT,
    ILLEGAL_STATE,
    INVALID_VALUE,
    SUCCESS,
)
from .graphs import IF, conditional, instantiated, new_graph

CAPTURE_MERGE, WRONG_THREAD = 902, 908
THREAD_LOCAL = 1
ADD, SET = 0, 1


def in_thread(client, function):
    def run():
        client.ok("cuCtxSetCurrent", client.lib.primary)
        results.append(function())

    results = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def end(client, stream):
    graph = ctypes.c_void_p()
    return client.call("cuStreamEndCapture", stream, ctypes.byref(graph)), graph.value


@pytest.mark.parametrize("mode, expected", [(0, WRONG_THREAD), (1, WRONG_THREAD), (2, SUCCESS)])
def test_ended_by_another_thread(client, mode, expected):
    capture = Capture(client, mode)
    status, graph = in_thread(client, lambda: end(client, capture.stream))
    assert status == expected
    if graph:
        client.ok("cuGraphDestroy", graph)
    assert end(client, capture.stream) == (ILLEGAL_STATE, None)


@pytest.mark.parametrize("mode, refused", [(0, True), (1, False), (2, False)])
def test_unsafe_calls_of_other_threads(client, mode, refused):
    capture = Capture(client, mode)
    address = ctypes.c_uint64()
    status = in_thread(client, lambda: client.call("cuMemAlloc_v2", ctypes.byref(address), 64))
    if refused:
        assert status == CAPTURE_UNSUPPORTED
        assert broken(capture)
    else:
        assert status == SUCCESS
        assert intact(capture)
        client.ok("cuMemFree_v2", address)


def test_thread_local_capture_refuses_its_own_thread(client):
    capture = Capture(client, THREAD_LOCAL)
    address = ctypes.c_uint64()
    assert client.call("cuMemAlloc_v2", ctypes.byref(address), 64) == CAPTURE_UNSUPPORTED
    assert broken(capture)


@pytest.mark.parametrize("bad", [-1, 3])
def test_bad_modes(client, bad):
    mode = ctypes.c_int(bad)
    assert client.call("cuStreamBeginCapture_v2", client.stream(), bad) == INVALID_VALUE
    # cuThreadExchangeStreamCaptureMode does not check the new mode, so it accepts a bad one.
    for before in (0, bad):
        client.ok("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        assert mode.value == before


def test_captures_do_not_merge(client, capture):
    client.ok("cuStreamBeginCapture_v2", capture.other, 2)
    client.ok("cuEventRecord", capture.event, capture.stream)
    status = client.call("cuStreamWaitEvent", capture.other, capture.event, 0)
    assert status == CAPTURE_MERGE
    assert end(client, capture.other) == (CAPTURE_INVALIDATED, None)
    assert broken(capture)


def test_stream_is_captured_once(client, capture):
    assert client.call("cuStreamBeginCapture_v2", capture.stream, 0) == ILLEGAL_STATE
    assert intact(capture)


def test_legacy_stream_cannot_be_captured(client):
    assert client.call("cuStreamBeginCapture_v2", None, 0) == CAPTURE_UNSUPPORTED


def test_per_thread_stream_can_be_captured(client, mode):
    per_thread = ctypes.c_void_p(2)
    client.ok("cuStreamBeginCapture_v2", per_thread, mode)
    status, graph = end(client, per_thread)
    assert status == SUCCESS
    client.ok("cuGraphDestroy", graph)


def test_captured_event_can_be_destroyed(client, capture):
    client.ok("cuEventRecord", capture.event, capture.stream)
    client.ok("cuStreamWaitEvent", capture.other, capture.event, 0)
    client.forget("cuEventDestroy_v2", capture.event)
    client.ok("cuEventDestroy_v2", capture.event)
    assert client.call("cuStreamQuery", capture.other) == CAPTURE_UNSUPPORTED
    assert broken(capture)


def test_time_of_captured_events(client, capture):
    elapsed, other = ctypes.c_float(), client.event()
    client.ok("cuEventRecord", capture.event, capture.stream)
    client.ok("cuEventRecord", other, capture.stream)
    status = client.call("cuEventElapsedTime", ctypes.byref(elapsed), capture.event, other)
    assert status == CAPTURED_EVENT
    capture.end()
    status = client.call("cuEventElapsedTime", ctypes.byref(elapsed), capture.event, other)
    assert status == INVALID_VALUE


def test_external_events(client, capture):
    client.ok("cuEventRecordWithFlags", capture.event, capture.stream, 1)
    client.ok("cuStreamWaitEvent", capture.stream, capture.event, 1)
    assert intact(capture)
    # The graph has not run, so the event has not been recorded.
    assert client.call("cuEventQuery", capture.event) == SUCCESS


def test_external_events_are_for_captures(client):
    stream, event = client.stream(), client.event()
    assert client.call("cuEventRecordWithFlags", event, stream, 1) != SUCCESS
    assert client.call("cuStreamWaitEvent", stream, event, 1) != SUCCESS
    assert client.call("cuEventRecordWithFlags", event, stream, 2) == INVALID_VALUE


def test_memory_of_a_graph(client, capture):
    address = ctypes.c_uint64()
    client.ok("cuMemAllocAsync", ctypes.byref(address), 4096, capture.stream)
    client.ok("cuMemFreeAsync", address, capture.stream)
    assert client.call("cuMemFreeAsync", address, capture.stream) == INVALID_VALUE
    capture.end()


def test_other_memory_is_not_freed_in_a_capture(client):
    stream, address = client.stream(), ctypes.c_uint64()
    client.ok("cuMemAllocAsync", ctypes.byref(address), 4096, stream)
    capture = Capture(client, 2)
    assert client.call("cuMemFreeAsync", address, capture.stream) == INVALID_VALUE
    capture.end()
    client.ok("cuMemFreeAsync", address, stream)
    client.ok("cuStreamSynchronize", stream)


def test_values_are_captured(client, capture):
    client.ok("cuStreamWriteValue32_v2", capture.stream, capture.locked, 7, 0)
    client.ok("cuStreamWaitValue32_v2", capture.stream, capture.locked, 7, 0)
    assert intact(capture)
    assert ctypes.c_uint32.from_address(capture.locked).value == 0


class Info:
    """The results of cuStreamGetCaptureInfo_v3."""

    def __init__(self, client, stream):
        status, identifier = ctypes.c_int(-1), ctypes.c_uint64()
        graph, nodes = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_void_p)()
        edges, count = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_size_t()
        outputs = (status, identifier, graph, nodes, edges, count)
        client.ok("cuStreamGetCaptureInfo_v3", stream, *map(ctypes.byref, outputs))
        self.status, self.identifier = status.value, identifier.value
        self.graph, self.nodes = graph.value, [nodes[i] for i in range(count.value)]


def test_info(client, capture):
    info = Info(client, capture.stream)
    assert info.status == ACTIVE
    assert info.graph
    assert info.nodes == []
    client.ok("cuMemsetD8Async", capture.device, 7, 64, capture.stream)
    client.ok("cuMemsetD8Async", capture.device, 7, 64, capture.stream)
    after = Info(client, capture.stream)
    assert (after.identifier, after.graph) == (info.identifier, info.graph)
    assert len(after.nodes) == 1
    status, graph = end(client, capture.stream)
    assert (status, graph) == (SUCCESS, info.graph)
    client.ok("cuGraphDestroy", graph)
    assert Info(client, capture.stream).status == NONE


def test_info_of_a_forked_stream(client, capture):
    client.ok("cuMemsetD8Async", capture.device, 7, 64, capture.stream)
    client.ok("cuEventRecord", capture.event, capture.stream)
    client.ok("cuStreamWaitEvent", capture.other, capture.event, 0)
    assert Info(client, capture.other).nodes == Info(client, capture.stream).nodes
    assert Info(client, capture.other).identifier == Info(client, capture.stream).identifier
    assert intact(capture)


def test_edges_need_nodes(client, capture):
    status, edges = ctypes.c_int(), ctypes.c_void_p()
    result = client.call(
        "cuStreamGetCaptureInfo_v3",
        capture.stream,
        ctypes.byref(status),
        None,
        None,
        None,
        ctypes.byref(edges),
        None,
    )
    assert result == INVALID_VALUE
    capture.end()


def update(client, stream, nodes, flags):
    array = (ctypes.c_void_p * len(nodes))(*nodes)
    return client.call("cuStreamUpdateCaptureDependencies", stream, array, len(nodes), flags)


def test_dependencies_can_be_added(client, capture):
    client.ok("cuEventRecord", capture.event, capture.stream)
    client.ok("cuStreamWaitEvent", capture.other, capture.event, 0)
    client.ok("cuMemsetD8Async", capture.device, 7, 64, capture.other)
    nodes = Info(client, capture.other).nodes
    assert update(client, capture.stream, nodes, ADD) == SUCCESS
    assert Info(client, capture.stream).nodes == nodes
    assert intact(capture)  # `intact` joins the other stream to the capture


def test_dependencies_can_be_replaced(client, capture):
    client.ok("cuMemsetD8Async", capture.device, 7, 64, capture.stream)
    assert update(client, capture.stream, [], SET) == SUCCESS
    assert Info(client, capture.stream).nodes == []
    assert intact(capture)


def test_dependencies_of_no_capture(client, capture):
    assert update(client, client.stream(), [], SET) == ILLEGAL_STATE
    assert update(client, capture.stream, [], 7) == INVALID_VALUE
    capture.end()


def test_stream_destroyed_with_unjoined_work(client, capture):
    client.ok("cuEventRecord", capture.event, capture.stream)
    client.ok("cuStreamWaitEvent", capture.other, capture.event, 0)
    client.ok("cuMemsetD8Async", capture.device, 7, 64, capture.other)
    client.forget("cuStreamDestroy_v2", capture.other)
    client.ok("cuStreamDestroy_v2", capture.other)
    assert end(client, capture.stream) == (CAPTURE_UNJOINED, None)


def fail_to_capture(client, graph, why):
    """Begin a capture to a graph, and end the capture by an error."""
    stream, other = client.stream(), client.stream()
    event, target = client.event(), client.device(64)
    client.ok("cuStreamBeginCaptureToGraph", stream, graph, None, None, 0, 2)
    if why == CAPTURE_INVALIDATED:
        assert client.call("cuStreamQuery", stream) == CAPTURE_UNSUPPORTED
    else:
        client.ok("cuEventRecord", event, stream)
        client.ok("cuStreamWaitEvent", other, event, 0)
        client.ok("cuMemsetD8Async", target, 7, 64, other)
    assert end(client, stream) == (why, None)


WHY = pytest.mark.parametrize("why", [CAPTURE_INVALIDATED, CAPTURE_UNJOINED])


@WHY
def test_an_end_that_fails_destroys_the_programs_graph(client, why):
    graph, count = new_graph(client), ctypes.c_size_t()
    fail_to_capture(client, graph, why)
    # Real drivers may give the next graph the same handle, so the client must not destroy it.
    client.forget("cuGraphDestroy", graph)
    assert client.call("cuGraphGetNodes", graph, None, ctypes.byref(count)) == INVALID_VALUE
    assert instantiated(client, graph) == (INVALID_VALUE, None)
    if client.lib.software:
        assert client.call("cuGraphDestroy", graph) == INVALID_VALUE


@WHY
@pytest.mark.cuda_software  # a real driver crashes
def test_an_end_that_fails_in_a_body_loses_the_whole_graph(lost, why):
    graph, count = new_graph(lost), ctypes.c_size_t()
    _, (body,), _ = conditional(lost, graph, IF, 1, 1)
    fail_to_capture(lost, body, why)
    assert lost.call("cuGraphGetNodes", body, None, ctypes.byref(count)) == INVALID_VALUE
    lost.ok("cuGraphGetNodes", graph, None, ctypes.byref(count))
    assert count.value == 1
    assert instantiated(lost, graph) == (INVALID_VALUE, None)
    assert lost.call("cuGraphDestroy", graph) == INVALID_VALUE


@pytest.mark.cuda_software
def test_graph_cannot_be_destroyed_while_it_is_captured(client, software, capture):
    graph = Info(client, capture.stream).graph
    assert client.call("cuGraphDestroy", graph) == ILLEGAL_STATE
    assert intact(capture)


@pytest.mark.cuda_software
def test_capture_of_a_thread_that_has_gone(client, software):
    in_thread(client, lambda: client.ok("cuStreamBeginCapture_v2", ctypes.c_void_p(2), 0))
    # cuMemAlloc is allowed again when the capturing thread has really ended.
    end_of_time = time.monotonic() + PATIENCE
    address = ctypes.c_uint64()
    while client.call("cuMemAlloc_v2", ctypes.byref(address), 64) == CAPTURE_UNSUPPORTED:
        assert time.monotonic() < end_of_time
        time.sleep(0.001)
    client.ok("cuMemFree_v2", address)
