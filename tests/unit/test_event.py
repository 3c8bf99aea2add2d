"""Event: recording, waiting, timing, closing."""

import threading

import pytest
from in_threads import started, until_it_waits

import cudadrv as cu


@pytest.fixture
def event(stream):
    event = stream.record()
    yield event
    event.close()


def test_never_recorded_is_refused_everywhere(stream):
    """All uses of an event that was never recorded are refused.

    The driver would count it as complete.
    """
    event = cu.Event(timing=True)
    recorded = stream.record(cu.Event(timing=True))
    uses = [
        event.synchronize,
        lambda: event.done,
        lambda: stream.wait(event),
        lambda: event.elapsed_ms(recorded),
        lambda: recorded.elapsed_ms(event),
    ]
    for use in uses:
        with pytest.raises(cu.EventNotRecordedError, match=r"stream\.record"):
            use()
    assert "not recorded" in repr(event)
    assert "with timing" in repr(event)


@pytest.mark.cuda_software
def test_never_recorded_makes_no_call(stream, unchanged):
    event = cu.Event()
    with unchanged("cuStreamWaitEvent", "cuEventQuery"):
        for use in (event.synchronize, lambda: stream.wait(event)):
            with pytest.raises(cu.EventNotRecordedError):
                use()


def test_closed_is_refused_everywhere(stream, event):
    event.close()
    event.close()
    assert event.closed
    assert repr(event) == "<Event closed>"
    uses = [
        event.synchronize,
        lambda: event.done,
        lambda: stream.wait(event),
        lambda: stream.record(event),
        lambda: event.elapsed_ms(stream.record(cu.Event(timing=True))),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="closed"):
            use()


def test_never_initialized_is_as_closed(stream):
    event = cu.Event.__new__(cu.Event)
    assert event.closed
    event.close()
    for use in (event.synchronize, lambda: event.done, lambda: stream.wait(event)):
        with pytest.raises(ValueError, match="closed"):
            use()
    with pytest.raises(ValueError):
        stream.record(event)
    made = cu.Event()
    with pytest.raises(TypeError, match="exists already"):
        made.__init__()


def test_a_wait_is_a_snapshot(stream, other, gate):
    """A wait for an event is not changed by later recordings of the event."""
    event = stream.record(cu.Event())
    other.wait(event)
    gate.hold(stream)
    stream.record(event)
    other.synchronize()  # would never return if `other` waited for the second recording
    assert not event.done
    gate.open()
    event.synchronize()


def test_a_wait_made_later_is_for_the_later_recording(stream, other):
    buffer = cu.LockedBuffer.zeros(16)
    event = stream.record(cu.Event())
    buffer.fill_async(1, stream)
    other.wait(event)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)
    stream.record(event)
    other.wait(event)
    buffer.fill_async(2, other)


def test_synchronize_gives_the_host_what_was_before(stream):
    first, second = cu.LockedBuffer.zeros(16), cu.LockedBuffer.zeros(16)
    first.fill_async(1, stream)
    event = stream.record()
    second.fill_async(1, stream)
    event.synchronize()
    assert not first.borrowed
    assert second.borrowed
    stream.synchronize()


def test_done_that_is_true_is_an_observation(stream):
    buffer = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, stream)
    event = stream.record()
    while not event.done:
        assert buffer.borrowed
    assert not buffer.borrowed


def test_timing(stream):
    start, end = cu.Event(timing=True), cu.Event(timing=True)
    stream.record(start)
    cu.DeviceBuffer(1 << 20).fill_async(0, stream)
    stream.record(end)
    end.synchronize()
    start.synchronize()
    assert end.elapsed_ms(start) >= 0
    if end.elapsed_ms(start):
        with pytest.raises(ValueError, match=r"ms later .* call end\.elapsed_ms\(start\)"):
            start.elapsed_ms(end)


def test_timing_needs_what_it_needs(stream, gate):
    timed, plain = stream.record(cu.Event(timing=True)), stream.record()
    with pytest.raises(ValueError, match="timing=True"):
        timed.elapsed_ms(plain)
    with pytest.raises(TypeError):
        timed.elapsed_ms(None)
    with cu.Context.create(cu.Device(0)):
        foreign = cu.Stream().record(cu.Event(timing=True))
    with pytest.raises(ValueError, match="one context"):
        timed.elapsed_ms(foreign)
    gate.hold(stream)
    late = stream.record(cu.Event(timing=True))
    with pytest.raises(cu.CudaError) as caught:
        late.elapsed_ms(timed)
    assert caught.value.status is cu.CUresult.CUDA_ERROR_NOT_READY
    assert caught.value.call == "cuEventElapsedTime"
    gate.open()
    late.synchronize()


def test_blocking_sync_events_wait_too(stream):
    stream.record(cu.Event(blocking_sync=True)).synchronize()


def waiting(event) -> tuple[threading.Thread, list]:
    """Start a thread that waits for the event, and return when it waits."""
    thread, answers = started(event.synchronize)
    until_it_waits(thread)
    return thread, answers


def test_closing_while_another_thread_waits(stream, gate):
    """The driver's event exists until a thread that waits for it has returned."""
    gate.hold(stream)
    event = stream.record()
    thread, answers = waiting(event)
    event.close()
    assert event.closed
    assert not answers
    with pytest.raises(ValueError, match="closed"):
        stream.record(event)
    gate.open()
    thread.join()
    assert answers == [None]


def test_recording_elsewhere_while_another_thread_waits(stream, other, gate):
    """An event is recorded on another stream while a thread waits for it. The wait raises an error.

    The driver then waits for the new recording, which says nothing about the old one.
    """
    buffer = cu.LockedBuffer.zeros(16)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    event = stream.record(cu.Event())
    thread, answers = waiting(event)
    other.record(event)
    # A device may have fewer queues than the program has streams, so `other` may wait for `stream`.
    gate.open()
    thread.join()
    assert isinstance(answers[0], cu.OwnershipError)
    assert buffer.borrowed
    stream.synchronize()


def test_recording_again_while_another_thread_waits(stream, gate):
    gate.hold(stream)
    event = stream.record(cu.Event())
    thread, answers = waiting(event)
    stream.record(event)
    gate.open()
    thread.join()
    assert answers == [None]


def test_events_outlive_their_stream(driver):
    stream = cu.Stream()
    event = stream.record()
    stream.close()
    del stream
    event.synchronize()
    assert event.done


def test_streams_wait_for_nothing_else(driver):
    for other in (None, 1, "event", cu.Event):
        with pytest.raises(TypeError):
            cu.Stream().wait(other)
