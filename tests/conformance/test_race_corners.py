"""Corner cases of the race detector, under every schedule: programs with and without a race."""

import ctypes
import threading

import pytest
from limits import PATIENCE

from .client import GEQ, LEGACY, NOT_READY, SUCCESS, poll
from .race_program import DOWNLOAD, FILL, SIZE, UPLOAD, check_report, check_silence, store

pytestmark = pytest.mark.cuda_software

EQ = 1


def word(address):
    return ctypes.c_uint32.from_address(address)


def driven_poll(p, done):
    """Poll host memory. The poll calls the driver, so that queued work runs."""

    def look():
        p.lib("cudadrvSoftDrain")
        return SUCCESS if done() else NOT_READY

    poll(look)


def event_waited_for_late_then_event_of_the_context(p):
    a, b = p.streams()
    x, event = p.device(SIZE), p.event()
    p.fill(x, a)
    early = p.record(a)
    p.lib("cudadrvSoftDrain")
    p.wait(b, early)  # the record is complete, but the host does not know that
    p.ok("cuCtxRecordEvent", p.lib.primary, event)
    p.ok("cuEventSynchronize", event)
    p.fill(x, p.stream())


def value_that_a_stream_takes_back(p):
    """A mailbox for one value: the host fills it, and the stream empties it, several times."""
    a, x, y, flag = p.stream(), p.device(SIZE), p.host(SIZE), p.host(4)
    for _ in range(4):
        p.ok("cuStreamWaitValue32_v2", a, flag, 1, EQ)
        p.upload(x, y, a)
        p.write_value(a, flag, 0)
    for step in range(4):
        store(y, step + 1)
        word(flag).value = 1
        p.call("cuStreamQuery", LEGACY)
        driven_poll(p, lambda: word(flag).value == 0)


def value_that_a_fill_takes_back(p):
    a, x, y, flag = p.stream(), p.device(SIZE), p.host(SIZE), p.host(4)
    event = [p.event() for _ in range(3)]
    for step in range(3):
        p.ok("cuStreamWaitValue32_v2", a, flag, 1, EQ)
        p.upload(x, y, a)
        p.ok("cuMemsetD32Async", flag, 0, 1, a)
        p.record(a, event[step])
    for step in range(3):
        store(y, step + 1)
        word(flag).value = 1
        p.ok("cuEventSynchronize", event[step])


def two_threads_take_turns(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)

    def run(stream):
        p.ok("cuCtxSetCurrent", p.lib.primary)
        for value in range(3):
            store(y, value)
            p.upload(x, y, stream)
            p.sync(stream)

    for stream in (a, b, a):
        thread = threading.Thread(target=run, args=(stream,))
        thread.start()
        thread.join()


def per_thread_streams_by_events(p):
    x, event = p.device(SIZE), p.event()

    def run(first):
        p.ok("cuCtxSetCurrent", p.lib.primary)
        if not first:
            p.ok("cuStreamWaitEvent", 2, event, 0)
        p.fill(x, 2)
        p.ok("cuEventRecord", event, 2)

    for first in (True, False, False):
        thread = threading.Thread(target=run, args=(first,))
        thread.start()
        thread.join()
    p.sync(LEGACY)  # per-thread streams are blocking streams, and exist longer than their threads
    p.fill(x, p.stream())


def rerecorded_events_of_many_streams(p):
    streams, event, x = [p.stream() for _ in range(5)], p.event(), p.device(SIZE)
    for step in range(20):
        p.fill(x, streams[step % 5])
        p.record(streams[step % 5], event)
        p.wait(streams[(step + 1) % 5], event)
    p.ok("cuEventSynchronize", event)
    p.free(x)


def other_context(p):
    context = ctypes.c_void_p()
    p.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    return context


def legacy_of_two_contexts_by_events(p):
    x, mine = p.device(SIZE), p.event()
    p.fill(x, LEGACY)
    p.record(LEGACY, mine)
    context = other_context(p)
    p.ok("cuStreamWaitEvent", LEGACY, mine, 0)
    p.fill(x, LEGACY)
    p.ok("cuCtxSynchronize")
    p.ok("cuCtxDestroy_v2", context)
    p.ok("cuCtxSetCurrent", p.lib.primary)
    p.fill(x, p.stream())


def context_that_waits(p):
    x, event = p.device(SIZE), p.event()
    p.fill(x, p.stream())
    p.ok("cuCtxRecordEvent", p.lib.primary, event)
    context = other_context(p)
    p.ok("cuCtxWaitEvent", context, event)
    p.fill(x, LEGACY)
    p.ok("cuCtxSynchronize")
    p.ok("cuCtxDestroy_v2", context)
    p.ok("cuCtxSetCurrent", p.lib.primary)


def destroyed_streams_and_the_context(p):
    x, y = p.device(SIZE), p.host(SIZE)
    for _ in range(3):
        a = p.stream()
        p.fill(x, a)
        p.download(y, x, a)
        p.forget("cuStreamDestroy_v2", a)
        p.ok("cuStreamDestroy_v2", a)
        p.ok("cuCtxSynchronize")
        store(y)
    p.free(x)


def host_function_told_by_the_host(p):
    """A host function blocks its stream until the host has written the source of the next copy."""
    a, x, y = p.stream(), p.device(SIZE), p.host(SIZE)
    written = threading.Event()
    p.host_function(a, lambda: written.wait(PATIENCE))
    p.upload(x, y, a)
    p.call("cuStreamQuery", a)
    store(y, 9)
    written.set()


def pool_memory_round_and_round(p):
    a, b = p.streams()
    for _ in range(10):
        x = p.allocate_async(a, 1 << 16)
        p.fill(x, a)
        p.order(a, b)
        p.fill(x, b)
        p.ok("cuMemFreeAsync", x, b)


SILENT = [
    event_waited_for_late_then_event_of_the_context,
    value_that_a_stream_takes_back,
    value_that_a_fill_takes_back,
    two_threads_take_turns,
    per_thread_streams_by_events,
    rerecorded_events_of_many_streams,
    legacy_of_two_contexts_by_events,
    context_that_waits,
    destroyed_streams_and_the_context,
    host_function_told_by_the_host,
    pool_memory_round_and_round,
]


@pytest.mark.parametrize("correct", SILENT, ids=lambda correct: correct.__name__)
def test_is_silent(program, correct):
    check_silence(program, correct)


def destroyed_stream_still_works(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    p.download(y, x, a)
    p.forget("cuStreamDestroy_v2", a)
    p.ok("cuStreamDestroy_v2", a)
    p.sync(b)
    p.fill(x, b)
    return FILL, DOWNLOAD


def handle_of_a_destroyed_stream(p):
    a = p.stream()
    x = p.device(SIZE)
    p.fill(x, a)
    p.forget("cuStreamDestroy_v2", a)
    p.ok("cuStreamDestroy_v2", a)
    for _ in range(8):
        p.ok("cuMemsetD32Async", x, 1, 4, p.stream())
    return FILL, "cuMemsetD32Async"


def legacy_streams_of_two_contexts(p):
    x = p.device(SIZE)
    p.fill(x, LEGACY)
    context = other_context(p)
    p.ok("cuMemsetD32Async", x, 1, 4, LEGACY)
    p.ok("cuCtxSynchronize")
    p.ok("cuCtxDestroy_v2", context)
    p.ok("cuCtxSetCurrent", p.lib.primary)
    return FILL, "cuMemsetD32Async"


def context_that_waited_is_gone(p):
    """A new context is not ordered after the events for which a destroyed context has waited."""
    a, x, flag, event = p.stream(), p.device(SIZE), p.gate(), p.event()
    flag.hold(a)
    p.fill(x, a)
    p.record(a, event)
    for _ in range(20):
        context = other_context(p)
        p.ok("cuCtxWaitEvent", context, event)
        p.ok("cuCtxDestroy_v2", context)
    context = other_context(p)
    flag.open()
    p.ok("cuMemsetD32Async", x, 1, 4, LEGACY)
    p.ok("cuCtxSynchronize")
    p.ok("cuCtxDestroy_v2", context)
    p.ok("cuCtxSetCurrent", p.lib.primary)
    return FILL, "cuMemsetD32Async"


def memory_of_a_destroyed_context(p):
    a = p.stream()
    context = other_context(p)
    x = ctypes.c_uint64()
    p.ok("cuMemAlloc_v2", ctypes.byref(x), SIZE)
    p.ok("cuCtxSetCurrent", p.lib.primary)
    p.fill(x.value, a)
    p.ok("cuCtxDestroy_v2", context)
    return FILL, "cuCtxDestroy_v2"


def source_written_between_two_values(p):
    """The flag stays 1, so the second wait does not wait for the second host write."""
    a, x, y, flag = p.stream(), p.device(SIZE), p.host(SIZE), p.host(4)
    for _ in range(2):
        p.ok("cuStreamWaitValue32_v2", a, flag, 1, GEQ)
        p.upload(x, y, a)
    store(y, 1)
    word(flag).value = 1
    p.call("cuStreamQuery", LEGACY)
    store(y, 2)
    return UPLOAD, "the host wrote"


def two_threads_do_not_wait(p):
    x, done = p.device(SIZE), []

    def run():
        p.ok("cuCtxSetCurrent", p.lib.primary)
        p.fill(x, 2)
        done.append(1)

    p.fill(x, 2)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return FILL, FILL


RACY = [
    destroyed_stream_still_works,
    handle_of_a_destroyed_stream,
    legacy_streams_of_two_contexts,
    context_that_waited_is_gone,
    memory_of_a_destroyed_context,
    source_written_between_two_values,
    two_threads_do_not_wait,
]


@pytest.mark.parametrize("plant", RACY, ids=lambda plant: plant.__name__)
def test_reports(program, plant):
    check_report(program, plant)
