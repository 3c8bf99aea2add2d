"""Stream: creation, queries, closing, refused calls."""

import copy
import gc
import pickle
import signal
import threading

import pytest

import cudadrv as cu


def test_kinds(driver):
    assert not cu.Stream().blocking
    assert cu.Stream(blocking=True).blocking
    assert cu.Stream().device == cu.Device(0)


def test_priorities(driver):
    greatest, least = cu.Device(0).context.priority_range
    for priority in range(greatest, least + 1):
        assert cu.Stream(priority=priority).priority == priority
    for priority in (greatest - 1, least + 1):
        with pytest.raises(ValueError, match=f"priority {priority} is not from {greatest}"):
            cu.Stream(priority=priority)
    with pytest.raises(TypeError):
        cu.Stream(priority=0.5)


@pytest.mark.cuda_software
def test_a_bad_priority_makes_no_stream(driver, unchanged):
    with unchanged("cuStreamCreateWithPriority"), pytest.raises(ValueError):
        cu.Stream(priority=1000)


def test_done_and_synchronize(stream, gate):
    assert stream.done
    gate.hold(stream)
    assert not stream.done
    gate.open()
    stream.synchronize()
    assert stream.done


def test_synchronize_waits_for_work_of_other_libraries_too(stream, gate):
    """`synchronize` also waits for work of other libraries, which the engine does not know."""
    gate.hold(stream)
    opener = threading.Timer(0.1, gate.open)
    opener.start()
    stream.synchronize()
    assert gate.flag[0] == 1
    opener.join()


def test_an_event_covers_work_of_other_libraries_too(stream, other, gate):
    gate.hold(stream)
    event = stream.record()
    other.wait(event)
    assert not event.done
    assert not other.done
    gate.open()
    event.synchronize()
    other.synchronize()


def test_closed_streams_refuse(stream, other):
    event = stream.record()
    stream.close()
    stream.close()
    assert stream.closed
    assert "closed" in repr(stream)
    uses = [
        stream.synchronize,
        stream.record,
        lambda: stream.wait(event),
        lambda: other.wait(stream),
        lambda: stream.done,
        lambda: stream.handle,
        lambda: stream.__enter__(),
        lambda: cu.LockedBuffer(4).fill_async(0, stream),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="is closed: it takes no more work"):
            use()


@pytest.mark.cuda_software
def test_a_closed_stream_makes_no_call(stream, unchanged):
    stream.close()
    with unchanged("cuEventRecord", "cuStreamQuery", "cuStreamDestroy_v2"):
        stream.close()
        with pytest.raises(ValueError):
            stream.record()
        with pytest.raises(ValueError):
            stream.synchronize()


def test_closing_with_pending_work_returns_and_keeps_the_borrows(stream, gate):
    buffer = cu.LockedBuffer.zeros(16)
    gate.hold(stream)
    token = buffer.fill_async(1, stream)
    stream.close()
    assert buffer.borrowed
    assert not token.done
    gate.open()
    token.wait()
    assert not buffer.borrowed
    assert buffer[0] == 1


def test_dying_with_pending_work_keeps_the_borrows(gate):
    buffer = cu.LockedBuffer.zeros(16)
    stream = cu.Stream()
    gate.hold(stream)
    buffer.fill_async(1, stream)
    del stream
    gc.collect()
    assert buffer.borrowed
    gate.open()
    with cu.ordering("wait"):
        assert buffer[0] == 1


def test_waits_for_all_kinds(stream, other, gate):
    buffer = cu.LockedBuffer.zeros(16)
    gate.hold(stream)
    token = buffer.fill_async(1, stream)
    for work in (stream.record(), token, stream, other):
        other.wait(work)
    again = buffer.fill_async(2, other)  # allowed: `other` is ordered after `stream`
    assert not other.done
    gate.open()
    again.wait()
    assert buffer[0] == 2


@pytest.mark.parametrize("work", [None, 0, "event", object()])
def test_waits_for_nothing_else(stream, work):
    with pytest.raises(TypeError):
        stream.wait(work)


@pytest.mark.parametrize("event", [0, "event", object()])
def test_records_nothing_else(stream, event):
    with pytest.raises(TypeError):
        stream.record(event)


def test_streams_are_not_copied(stream):
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copying(stream)


def test_never_initialized_and_initialized_twice(stream):
    bare = cu.Stream.__new__(cu.Stream)
    assert bare.closed
    assert "never initialized" in repr(bare)
    bare.close()
    for use in (bare.synchronize, bare.record, lambda: bare.handle, lambda: stream.wait(bare)):
        with pytest.raises(TypeError, match="never initialized"):
            use()
    with pytest.raises(TypeError, match="exists already"):
        stream.__init__()


class Alarm(Exception):
    pass


@pytest.fixture
def alarm():
    """A function that starts a timer. Its signal raises Alarm after a tenth of a second."""

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("way", ["stream", "event", "token", "context"])
def test_signals_interrupt_waits_and_the_borrows_stay(stream, gate, alarm, way):
    buffer = cu.LockedBuffer.zeros(16)
    gate.hold(stream)
    token = buffer.fill_async(1, stream)
    event = stream.record()
    waits = {
        "stream": stream.synchronize,
        "event": event.synchronize,
        "token": token.wait,
        "context": stream.context.synchronize,
    }

    def wait():
        alarm()
        waits[way]()  # without the signal, this wait would never end, because the gate is closed

    with pytest.raises(Alarm):
        wait()
    assert buffer.borrowed
    with pytest.raises(cu.BufferBorrowedError):
        buffer[0]
    gate.open()
    waits[way]()
    assert buffer[0] == 1


def test_timed(stream, gate):
    with stream.timed() as timed:
        gate.hold(stream)
        with pytest.raises(ValueError, match="no time yet: read it after the block"):
            timed.ms  # noqa: B018
    assert not stream.done
    gate.open()
    assert 0 < timed.ms < 60_000
    first = timed.ms
    with timed:
        pass
    assert timed.ms != first
    assert repr(timed) == f"<Timed work of {stream!r}>"


def test_timed_blocks_that_fail(stream):
    timed = stream.timed()
    with pytest.raises(ZeroDivisionError), timed:
        1 / 0  # noqa: B018
    with pytest.raises(ValueError, match="no time yet"):
        timed.ms  # noqa: B018
    with pytest.raises(TypeError, match=r"use stream\.timed\(\)"):
        type(timed)()
    stream.close()
    for use in (stream.timed, timed.__enter__):
        with pytest.raises(ValueError, match="closed"):
            use()
