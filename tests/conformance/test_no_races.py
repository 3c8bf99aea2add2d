"""Correct programs: the race detector reports nothing, under every schedule."""

import ctypes
import threading

import pytest
from limits import PATIENCE

from .client import LEGACY, SUCCESS, poll
from .race_program import SIZE, allocate_managed, check_silence, discard, store

pytestmark = pytest.mark.cuda_software


def in_order(p):
    a, x, y = p.stream(), p.device(SIZE), p.host(SIZE)
    for _ in range(3):
        p.upload(x, y, a)
        p.fill(x, a)
        p.download(y, x, a)
    p.sync(a)
    store(y)
    p.upload(x, y, a)


def after_every_kind_of_wait(p):
    x, streams = p.device(SIZE), [p.stream() for _ in range(6)]
    event = p.event()
    waits = [
        lambda stream: p.sync(stream),
        lambda stream: p.ok("cuCtxSynchronize"),
        lambda stream: p.ok("cuEventSynchronize", p.record(stream, event)),
        lambda stream: poll(lambda: p.call("cuStreamQuery", stream)),
        lambda stream: p.record(stream, event) and poll(lambda: p.call("cuEventQuery", event)),
        lambda stream: p.download(ctypes.create_string_buffer(SIZE), x, stream),
    ]
    for stream, wait in zip(streams, waits, strict=True):
        p.fill(x, stream)
        wait(stream)
    p.free(x)


def waits_that_reach_other_streams(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    p.upload(x, y, a)
    p.order(a, b)
    p.sync(b)
    store(y)
    p.fill(x, p.stream())


def events_recorded_again(p):
    a, b = p.streams()
    x, event = p.device(SIZE), p.event()
    for _ in range(4):
        for here, there in ((a, b), (b, a)):
            p.fill(x, here)
            p.record(here, event)
            p.wait(there, event)
    p.fill(x, a)


def wait_for_what_is_done(p):
    a, b = p.streams()
    x = p.device(SIZE)
    p.fill(x, a)
    event = p.record(a)
    p.ok("cuMemFree_v2", p.allocate_async(b))
    p.lib("cudadrvSoftDrain")
    p.wait(b, event)
    p.fill(x, b)
    p.sync(b)
    p.fill(x, p.stream())


def event_destroyed_after_the_wait(p):
    a, b = p.streams()
    x = p.device(SIZE)
    p.fill(x, a)
    event = p.record(a)
    p.wait(b, event)
    p.forget("cuEventDestroy_v2", event)
    p.ok("cuEventDestroy_v2", event)
    p.fill(x, b)


def legacy_and_blocking(p):
    a, b = p.streams(0)
    x, y = p.device(SIZE), p.host(SIZE)
    p.fill(x, a)
    p.download(y, x, LEGACY)
    p.fill(x, b)
    p.ok("cuMemcpyDtoH_v2", y, x, SIZE)
    store(y)
    p.fill(x, 2)
    p.fill(x, LEGACY)
    p.sync(LEGACY)
    p.free(x)


def legacy_sync_reaches_blocking_streams(p):
    a, x = p.stream(0), p.device(SIZE)
    p.fill(x, a)
    p.sync(LEGACY)
    p.fill(x, p.stream())


def destroyed_streams(p):
    x = p.device(SIZE)
    for _ in range(10):
        a = p.stream()
        p.fill(x, a)
        p.forget("cuStreamDestroy_v2", a)
        p.ok("cuStreamDestroy_v2", a)
        p.ok("cuCtxSynchronize")


def events_of_a_context(p):
    a, b = p.streams()
    x, y, event = p.device(SIZE), p.device(SIZE), p.event()
    for drained in (False, True):
        p.fill(x, a)
        p.fill(y, b)
        if drained:
            p.lib("cudadrvSoftDrain")
        p.ok("cuCtxRecordEvent", p.lib.primary, event)
        p.ok("cuCtxWaitEvent", p.lib.primary, event)
        p.fill(y, a)
        p.fill(x, p.stream())
        p.ok("cuCtxRecordEvent", p.lib.primary, event)
        p.ok("cuEventSynchronize", event)


def readers_together(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(2 * SIZE)
    p.ok("cuMemsetD8_v2", x, 1, SIZE)
    p.ok("cuCtxSynchronize")
    p.download(y, x, a)
    p.download(y + SIZE, x, b)
    c = p.stream()
    p.order(a, c)
    p.order(b, c)
    p.fill(x, c)


def disjoint_bytes(p):
    a, b = p.streams()
    x = p.device(2 * SIZE)
    for _ in range(3):
        p.fill(x, a)
        p.fill(x + SIZE, b)
        p.fill(x + 10, a, 20)


def disjoint_columns(p):
    a, b = p.streams()
    c = p.stream()
    x = p.device(4096)
    p.fill_rows(x, 64, 32, 64, a)
    p.fill_rows(x + 32, 64, 16, 64, b)
    p.fill(x + 48, c, 16)
    p.fill_rows(x + 64 + 48, 128, 16, 31, c)


def staged_uploads(p):
    x, y = p.device(SIZE), ctypes.create_string_buffer(SIZE)
    a = p.stream(0)
    p.fill(x, a)
    p.ok("cuMemcpyHtoD_v2", x, y, SIZE)
    y[0] = 5
    p.fill(x, a)
    p.ok("cuCtxSynchronize")
    p.ok("cuMemcpyHtoD_v2", x, y, SIZE)
    p.sync(LEGACY)
    p.fill(x, p.stream())


def staging_waits_for_earlier_work(p):
    a, x, y = p.stream(0), p.device(SIZE), p.host(SIZE)
    p.upload(x, y, a)
    p.ok("cuMemcpyHtoD_v2", p.device(8), ctypes.create_string_buffer(8), 8)
    store(y)


def page_locked_copies_that_wait(p):
    x, y = p.device(SIZE), p.host(SIZE)
    p.ok("cuMemcpyHtoD_v2", x, y, SIZE)
    store(y)
    p.ok("cuMemcpyDtoH_v2", y, x, SIZE)
    store(y)
    p.fill(x, p.stream())
    p.ok("cuMemsetD8_v2", y, 0, SIZE)
    store(y)


def pageable_downloads_wait(p):
    a, x, y = p.stream(), p.device(SIZE), ctypes.create_string_buffer(SIZE)
    p.fill(x, a)
    p.download(y, x, a)
    p.fill(x, p.stream())


def stream_ordered_memory(p):
    a, b = p.streams()
    for _ in range(5):
        x = p.allocate_async(a)
        p.order(a, b)
        p.fill(x, b)
        p.order(b, a)
        p.ok("cuMemFreeAsync", x, a)
    y = p.allocate_async(b)
    p.sync(b)
    p.fill(y, a)
    p.sync(a)
    p.ok("cuMemFree_v2", y)


def host_sets_a_value(p):
    a, b = p.streams()
    x, y, flag = p.device(SIZE), p.host(SIZE), p.host(4)
    p.wait_value(b, flag)
    p.upload(x, y, b)
    p.fill(x, a)
    p.sync(a)
    store(y, 3)
    store(flag, 1)
    p.sync(b)
    store(y, 4)
    p.free(x)


def stream_sets_a_value(p):
    a, b = p.streams()
    x, flag = p.device(SIZE), p.device(8)
    p.ok("cuMemsetD8_v2", flag, 0, 8)
    p.ok("cuCtxSynchronize")
    for step in (1, 2, 3):
        p.fill(x, a)
        p.write_value(a, flag, step)
        p.wait_value(b, flag, step)
        p.fill(x, b)
        p.write_value(b, flag + 4, step)
        p.wait_value(a, flag + 4, step)
    p.fill(x, a)


def wait_comes_before_the_write(p):
    a, b = p.streams()
    c = p.stream()
    x, flag = p.device(SIZE), p.host(4)
    p.wait_value(b, flag)
    p.fill(x, b)
    p.order(b, c)
    p.fill(x, c)
    p.fill(x, a)
    p.write_value(a, flag)


def copy_sets_a_value(p):
    a, b = p.streams()
    x, flag, one = p.device(SIZE), p.device(4), p.host(4, 1)
    p.ok("cuMemsetD8_v2", flag, 0, 4)
    p.ok("cuCtxSynchronize")
    p.wait_value(b, flag)
    p.fill(x, b)
    p.fill(x, a)
    p.upload(flag, one, a, 4)


def host_sees_a_value(p):
    a, x, y, flag = p.stream(), p.device(SIZE), p.host(SIZE), p.host(4)
    p.upload(x, y, a)
    p.write_value(a, flag)
    p.lib("cudadrvSoftDrain")
    poll(lambda: SUCCESS if ctypes.string_at(flag, 1) == b"\x01" else 600)
    store(y)
    p.free(x)


def host_function_tells_the_host(p):
    a, x, y, told = p.stream(), p.device(SIZE), p.host(SIZE), threading.Event()
    p.upload(x, y, a)
    p.host_function(a, told.set)
    p.lib("cudadrvSoftDrain")
    assert told.wait(PATIENCE)
    store(y)
    p.fill(x, p.stream())


def host_function_makes_a_source(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    for step in range(3):
        p.host_function(a, lambda step=step: store(y, step + 1))
        p.upload(x, y, a)
        p.order(a, b)
        p.upload(x, y, b)
        p.order(b, a)


def device_writes_and_reads_host_memory(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    p.fill(x, a)
    for _ in range(3):
        p.download(y, x, a)
        p.order(a, b)
        p.upload(x, y, b)
        p.ok("cuMemsetD8Async", y, 5, SIZE, b)
        p.order(b, a)
    p.sync(a)
    store(y)


def prefetches_beside_uses(p):
    """A prefetch changes no byte, so it does not race with any use of the memory."""
    a, b, x = *p.streams(), p.managed(SIZE)
    for place in (0, -1):
        p.fill(x, a)
        p.ok("cuMemPrefetchAsync", x, SIZE, place, b)
        p.sync(a)
        store(x)
    p.sync(b)


def discards_in_order(p):
    a, x, y = p.stream(), p.managed(SIZE), p.device(SIZE)
    store(x)
    discard(p, x, a)
    p.fill(x, a)
    p.move(y, x, a)
    discard(p, x, a)
    p.sync(a)
    store(x)


def discards_of_memory_of_a_pool(p):
    """The discard is ordered after the allocation: by an event, by the host, or implicitly."""
    a, b, blocking = *p.streams(), p.stream(0)
    for allocating, discarding, order in (
        (a, b, p.order),
        (0, b, lambda before, after: p.sync(before)),
        (0, blocking, lambda before, after: None),
    ):
        x = allocate_managed(p, allocating)
        order(allocating, discarding)
        discard(p, x, discarding)
        p.sync(discarding)
        p.ok("cuMemFreeAsync", x, allocating)


def memory_of_a_managed_pool(p):
    a = p.stream()
    for _ in range(3):
        x = allocate_managed(p, a)
        p.fill(x, a)
        p.sync(a)
        store(x)
        p.fill(x, a)
        p.ok("cuMemFreeAsync", x, a)


def managed_memory(p):
    a, x, y = p.stream(), p.managed(SIZE), p.device(SIZE)
    for value in range(3):
        store(x, value)
        p.ok("cuMemPrefetchAsync", x, SIZE, 0, a)
        p.move(y, x, a)
        p.fill(x, a)
        p.sync(a)


def neighbours_on_the_host(p):
    a, x, y = p.stream(), p.device(SIZE), p.host(2 * SIZE)
    p.upload(x, y, a)
    store(y, 1, SIZE)
    p.download(y + SIZE + 8, x, a, 8)
    store(y, 1, SIZE + 7)
    store(y, 1, SIZE + 16)


def captured_work(p):
    a, b = p.streams()
    x, graph = p.device(SIZE), ctypes.c_void_p()
    p.ok("cuStreamBeginCapture_v2", a, 2)
    p.fill(x, a)
    p.fill(x, b)
    p.ok("cuStreamEndCapture", a, ctypes.byref(graph))
    p.ok("cuGraphDestroy", graph)


def host_memory_comes_back(p):
    a, x = p.stream(), p.device(SIZE)
    for _ in range(5):
        y = p.host(SIZE)
        p.upload(x, y, a)
        p.sync(a)
        p.forget("cuMemFreeHost", y)
        p.ok("cuMemFreeHost", y)


CORRECT = [
    in_order,
    after_every_kind_of_wait,
    waits_that_reach_other_streams,
    events_recorded_again,
    wait_for_what_is_done,
    event_destroyed_after_the_wait,
    legacy_and_blocking,
    legacy_sync_reaches_blocking_streams,
    destroyed_streams,
    events_of_a_context,
    readers_together,
    disjoint_bytes,
    disjoint_columns,
    staged_uploads,
    staging_waits_for_earlier_work,
    page_locked_copies_that_wait,
    pageable_downloads_wait,
    stream_ordered_memory,
    host_sets_a_value,
    stream_sets_a_value,
    wait_comes_before_the_write,
    copy_sets_a_value,
    host_sees_a_value,
    host_function_tells_the_host,
    host_function_makes_a_source,
    device_writes_and_reads_host_memory,
    managed_memory,
    prefetches_beside_uses,
    discards_in_order,
    discards_of_memory_of_a_pool,
    memory_of_a_managed_pool,
    neighbours_on_the_host,
    captured_work,
    host_memory_comes_back,
]


@pytest.mark.parametrize("correct", CORRECT, ids=lambda correct: correct.__name__)
def test_is_silent(program, correct):
    check_silence(program, correct)
