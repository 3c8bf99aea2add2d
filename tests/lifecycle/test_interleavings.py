"""Calls that other threads or finalizers interrupt in the middle."""

import ctypes
import gc
import sys
import threading
from contextlib import suppress

import pytest
from in_threads import started
from interleaving import PLACES, Held, at_collection, fill_after, filled_by
from limits import PATIENCE

import cudadrv as cu
from cudadrv._engine import books


@pytest.fixture
def library(driver):
    return ctypes.CDLL(cu.driver_info().path)


@pytest.fixture
def foreign(library):
    """A function that makes a stream which another library owns."""
    handles = []

    def stream() -> int:
        handle = ctypes.c_void_p()
        with cu.Device(0):
            assert library.cuStreamCreate(ctypes.byref(handle), 1) == 0
        handles.append(handle)
        return handle.value

    yield stream
    for handle in handles:
        assert library.cuStreamDestroy_v2(handle) == 0


@pytest.fixture
def eager_threads():
    """Let threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


# ---- one object for each stream ----


@pytest.mark.parametrize("function", [cu.Stream.legacy, cu.Stream.per_thread])
def test_one_object_for_a_default_stream(driver, function):
    # On a real driver, creating a context takes seconds while other tests also create contexts.
    for place in range(1, PLACES if cu.driver_info().is_software else 4):
        with cu.Context.create(cu.Device(0)):
            others = []
            with at_collection(place, lambda: others.append(function())):  # noqa: B023
                stream = function()
            assert all(other is stream for other in others)
            assert stream is function()


def test_one_object_for_a_foreign_stream(foreign):
    for place in range(1, PLACES):
        handle, others = foreign(), []
        with at_collection(place, lambda: others.append(cu.Stream.from_handle(handle))):  # noqa: B023
            stream = cu.Stream.from_handle(handle)
        assert all(other is stream for other in others)
        assert stream is cu.Stream.from_handle(handle)
        assert not stream.closed


@pytest.mark.usefixtures("eager_threads")
def test_one_object_for_a_foreign_stream_in_many_threads(foreign):
    handles = [foreign() for _ in range(50)]
    start = threading.Barrier(8)

    def work():
        found = []
        for handle in handles:
            start.wait()
            found.append(cu.Stream.from_handle(handle))
        return found

    threads = [started(work) for _ in range(8)]
    for thread, _ in threads:
        thread.join()
    first = threads[0][1][0]
    for _, [found] in threads:
        assert [a is b for a, b in zip(first, found, strict=True)] == [True] * 50


def test_one_primary_context(script, driver):
    script.quiet("""
        import sys
        import threading
        import cudadrv as cu

        sys.setswitchinterval(1e-6)
        start, contexts = threading.Barrier(8), []

        def work():
            start.wait()
            contexts.append(cu.Device(0).context)
            cu.reap()
            cu.Stream().record().synchronize()

        device = cu.Device(0)
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(contexts) == 8
        assert all(context is device.context for context in contexts)
    """)


# ---- streams that end meanwhile ----


def test_waiting_for_a_stream_that_another_thread_buries(gate, other):
    """Wait for a dropped stream while another thread reaps it and records its last event."""
    dying = cu.Stream(blocking=True)
    buffer = filled_by(dying)
    with Held(gate) as held:
        del dying
        burier, _ = started(cu.reap)
        held.still_held(burier)
        waiter, answers = started(lambda: fill_after(buffer, other))
        burier.join(0.1)
    burier.join()
    waiter.join()
    assert isinstance(answers[0], cu.Token), answers[0]


def test_waiting_for_a_stream_that_another_thread_closes(gate, other):
    dying = cu.Stream(blocking=True)
    buffer = filled_by(dying)
    with Held(gate) as held:
        closer, _ = started(dying.close)
        held.still_held(closer)
        waiter, answers = started(lambda: fill_after(buffer, other))
        held.still_held(waiter)
    closer.join()
    waiter.join()
    assert isinstance(answers[0], cu.Token), answers[0]


def test_a_token_that_becomes_known_while_one_asks(driver):
    """During a wait for a token, other calls learn that the token's work is complete.

    The token's stream is closed, and these calls also destroy the stream's last event.
    """

    def meanwhile():
        cu.Device(0).synchronize()
        cu.Stream()

    for place in range(1, PLACES):
        stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
        token = buffer.fill_async(1, stream)
        stream.close()
        with at_collection(place, meanwhile):
            token.wait()
        assert token.done


@pytest.mark.cuda_software
def test_room_for_closed_streams_while_one_is_being_closed(gate):
    """Many streams are closed while the oldest one is about to record its last event.

    A real driver may block all other calls while one call is blocked.
    """
    parts = cu.LockedBuffer.zeros(300).chunks(1)
    dying = cu.Stream(blocking=True)
    buffer = filled_by(dying)
    with Held(gate) as held:
        closer, _ = started(dying.close)
        held.still_held(closer)
        for part in parts:
            stream = cu.Stream()
            part.fill_async(1, stream)
            stream.close()
    closer.join()
    cu.Device(0).synchronize()
    assert buffer[0] == parts[-1][0] == 1


def test_a_slot_that_has_a_last_event_and_a_new_stream(driver):
    """The last event of a closed stream and a new stream of another context share a slot.

    A wait for that event does not cover the new stream's work.
    """
    contexts = [cu.Context.create(cu.Device(0)) for _ in range(4)]
    kept = []
    for context in contexts:
        with context:
            unknown, passing = cu.Stream(), cu.Stream()
            kept += [unknown, filled_by(unknown), filled_by(passing)]
            known = passing.record()
            passing.wait(unknown)
            # The last event of `passing` also covers the work of `unknown`, and `known` does not.
            passing.close()
            known.synchronize()
    streams = [cu.Stream() for _ in range(16)]
    buffers = [filled_by(stream) for stream in streams]
    for buffer in buffers:
        fill_after(buffer, unknown)
    del streams
    buffers.clear()
    unknown.synchronize()
    for context in contexts:
        context.synchronize()


# ---- memory ----


def test_listing_live_buffers_while_some_are_closed(driver):
    kept = [cu.LockedBuffer(8, name=f"kept {index}") for index in range(5)]
    for place in range(1, PLACES):
        others = [cu.LockedBuffer(8) for _ in range(5)]
        with at_collection(place, lambda: [buffer.close() for buffer in others]):  # noqa: B023
            labels = [buffer.label for buffer in cu.live_buffers()]
        for buffer in kept:
            assert f"LockedBuffer {buffer.name!r}" in labels


def test_one_owner_for_an_address(driver):
    for place in range(1, PLACES):
        address, owners = cu.LockedBuffer(64).into_raw(), []

        def adopt():
            with suppress(ValueError):
                owners.append(cu.LockedBuffer.from_raw(address, 64))  # noqa: B023

        with at_collection(place, adopt):
            adopt()
        assert len(owners) == 1
        with pytest.raises(ValueError, match="which owns and frees it"):
            cu.LockedBuffer.from_raw(address, 64)
        owners[0].close()


def test_one_taker(driver):
    for place in range(1, PLACES):
        buffer, taken = cu.LockedBuffer.zeros(8), []

        def take():
            with suppress(cu.BufferClosedError):
                taken.append(buffer.take())  # noqa: B023

        with at_collection(place, take):
            take()
        assert len(taken) == 1
        with pytest.raises(cu.BufferClosedError, match="was moved"):
            buffer.take()
        taken[0].close()


@pytest.mark.parametrize("ordered", [False, True])
def test_closing_what_is_closed_meanwhile(stream, ordered):
    """A second `close` that comes at any point of the first one does nothing."""
    for place in range(1, PLACES):
        buffer = cu.DeviceBuffer(64, stream=stream if ordered else None)
        with at_collection(place, buffer.close):
            buffer.close()
        assert buffer.closed


def test_created_contexts_leave_nothing_in_the_engine(driver):
    gc.collect()
    cu.Stream().close()  # opening a stream destroys ended streams
    before = books()
    for _ in range(20):
        context = cu.Context.create(cu.Device(0))
        with context:
            cu.Stream().record().synchronize()
            cu.Stream.legacy()
            buffer, stream = cu.DeviceBuffer(8), cu.Stream()
            buffer.fill_async(1, stream)
            stream.close()
            context.synchronize()
            buffer.close()
        del context, buffer, stream
    gc.collect()
    assert books()["contexts"] == before["contexts"]
    cu.Stream().close()
    assert books() == before


# ---- waits ----


def test_a_host_write_frees_a_thread_that_the_driver_holds(gate):
    """Host access takes no lock that a thread holds during a driver call.

    So a host write can end the wait of a thread in the driver.
    """
    buffer = cu.LockedBuffer.zeros(16)
    with Held(gate) as held:
        buffer[0] = 1
        assert held.thread.is_alive()
        gate.open()
        held.thread.join(PATIENCE)
        assert not held.thread.is_alive()


def test_interrupting_a_wait_while_others_work(script, driver):
    script.quiet("""
        import os
        import signal
        import threading
        import time
        import cudadrv as cu

        buffer, stop = cu.LockedBuffer.zeros(1 << 20), threading.Event()
        failures, rounds = [], [0] * 4

        def work(index):
            part, stream = buffer.chunks(1 << 18)[index], cu.Stream()
            try:
                while not stop.is_set():
                    part.fill_async(index, stream).wait()
                    rounds[index] += 1
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        held, flag = cu.Stream(), cu.LockedBuffer.zeros(1, "u4")
        import ctypes
        driver = ctypes.CDLL(cu.driver_info().path)
        with cu.Device(0):
            assert driver.cuStreamWaitValue32_v2(
                ctypes.c_void_p(held.handle), ctypes.c_ulonglong(flag.address), 1, 0) == 0
        mine = cu.LockedBuffer.zeros(16)
        mine.fill_async(1, held)
        for wait in (held.synchronize, held.record().synchronize, mine.fill_async(2, held).wait):
            try:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                wait()
                raise AssertionError("was not interrupted")
            except KeyboardInterrupt:
                assert mine.borrowed
        before = list(rounds)
        while not failures and not all(a > b for a, b in zip(rounds, before)):
            time.sleep(0.001)
        flag[0] = 1
        held.synchronize()
        assert mine[0] == 2
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
    """)
