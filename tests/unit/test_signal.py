"""Signal: a number that streams set and wait for."""

import asyncio
import gc
import threading

import numpy as np
import pytest
from in_threads import interrupted, started

import cudadrv as cu
from cudadrv import testing

COUNT = 16


@pytest.fixture
def signal(driver):
    signal = cu.Signal(name="ready")
    yield signal
    cu.Device(0).synchronize()
    signal.close()


@pytest.fixture
def work(driver):
    return cu.DeviceBuffer.zeros(COUNT, "i4", name="work")


@pytest.fixture
def frame(driver):
    return cu.LockedBuffer.zeros(COUNT, "i4", name="frame")


# ---- order ----


def test_a_wait_orders_what_was_before_the_set(stream, other, signal, work, frame):
    work.fill_async(3, stream)
    stream.set(signal, 1)
    with pytest.raises(cu.BufferBorrowedError, match="by copy_from_async on"):
        frame.copy_from_async(work, other)
    other.wait(signal, 1)
    frame.copy_from_async(work, other)
    other.synchronize()
    assert frame[0] == 3
    assert signal.value == 1


def test_a_wait_is_for_the_first_set_that_reaches_its_number(stream, other, signal, work, frame):
    frame.fill_async(1, stream)
    stream.set(signal, 3)
    work.fill_async(2, stream)
    stream.set(signal, 5)
    other.wait(signal, 2)
    frame.fill_async(9, other)
    with pytest.raises(cu.BufferBorrowedError, match="is being written by fill_async"):
        work.fill_async(9, other)
    other.wait(signal, 4)
    work.fill_async(9, other)


def test_a_wait_does_not_wait_for_later_work(stream, other, signal, gate, frame):
    stream.set(signal, 1)
    gate.hold(stream)
    stream.set(signal, 2)
    other.wait(signal, 1)
    frame.fill_async(1, other)
    other.synchronize()
    signal.wait(1)
    assert signal.value == 1
    gate.open()
    signal.wait(2)
    assert signal.value == 2


def test_what_a_set_was_ordered_after_is_known_too(stream, other, signal, work):
    third = cu.Stream()
    work.fill_async(1, stream)
    other.wait(stream)
    other.set(signal, 1)
    third.wait(signal, 1)
    work.fill_async(2, third)
    third.synchronize()


def test_the_host_may_use_what_was_before_the_set(stream, signal, frame):
    frame.fill_async(7, stream)
    stream.set(signal, 1)
    with pytest.raises(cu.BufferBorrowedError):
        frame.to_numpy()
    signal.wait(1)
    assert frame[0] == 7


def test_the_value_tells_the_host_that_the_work_is_complete(stream, signal, frame):
    frame.fill_async(7, stream)
    stream.set(signal, 1)
    while signal.value < 1:
        pass
    assert frame[0] == 7


def test_the_token_of_a_set_waits_for_the_set_alone(stream, other, signal, gate, frame):
    frame.fill_async(7, stream)
    token = stream.set(signal, 1)
    gate.hold(stream)
    token.wait()
    assert token.done
    assert frame[0] == 7
    assert "set on" in repr(token)
    assert (token.reads, token.writes) == ((), ())
    gate.open()


def test_await(stream, signal, gate, frame):
    async def main():
        await signal.at(1)
        assert frame[0] == 7
        await signal.at(0)

    gate.hold(stream)
    frame.fill_async(7, stream)
    stream.set(signal, 1)
    threading.Timer(0.05, gate.open).start()
    asyncio.run(main())


def test_streams_of_all_kinds(signal, frame):
    number = 0
    before = None
    for stream in (
        cu.Stream(),
        cu.Stream(blocking=True),
        cu.Stream.legacy(),
        cu.Stream.per_thread(),
        cu.Stream(),
    ):
        if before is not None:
            stream.wait(signal, number)
        frame.fill_async(number, stream)
        number += 1
        stream.set(signal, number)
        before = stream
    signal.wait(number)
    assert frame[0] == number - 1


def test_known_numbers_need_no_wait(stream, other, signal, unchanged):
    other.wait(signal, 0)
    stream.set(signal, 4)
    stream.synchronize()
    with unchanged("cuStreamWaitEvent", "cuEventRecord", "cuEventQuery"):
        for number in range(5):
            other.wait(signal, number)
            signal.wait(number, timeout=0)
    assert signal.value == 4


def test_a_group_of_steps(stream, other, signal):
    """Two streams take turns with one buffer."""
    turn = cu.LockedBuffer.zeros(COUNT, "i4")
    for step in range(50):
        mine = (stream, other)[step % 2]
        mine.wait(signal, step)
        turn.fill_async(step, mine)
        mine.set(signal, step + 1)
    signal.wait(50)
    assert turn[0] == 49


# ---- sets ----


def test_it_only_grows(stream, other, signal, unchanged):
    with pytest.raises(
        cu.SignalError, match="Signal 'ready' cannot be set to 0: that is its first"
    ):
        stream.set(signal, 0)
    stream.set(signal, 5)
    for number in (5, 4, 0):
        words = rf"set to {number}: it only grows, and tests.+:\d+ has set it to 5\. Set it to 6"
        with (
            unchanged("cuStreamWriteValue64_v2", "cuEventRecord"),
            pytest.raises(cu.SignalError, match=words),
        ):
            stream.set(signal, number)
    stream.synchronize()
    with pytest.raises(cu.SignalError, match="set to 5: it only grows"):
        signal.set(5)
    assert signal.value == 5
    stream.set(signal, 2**63 - 1)
    with pytest.raises(cu.SignalError, match="only grows"):
        stream.set(signal, 2**63 - 1)
    signal.wait(2**63 - 1)
    assert signal.value == 2**63 - 1


def test_sets_that_nothing_orders_are_refused(stream, other, signal):
    stream.set(signal, 1)
    words = (
        "cannot write Signal 'ready' by set on .*\n  it is being written by set on .*, queued at"
        r" tests.unit.test_signal.py:\d+,\n  and nothing orders this operation after it"
    )
    with pytest.raises(cu.BufferBorrowedError, match=words):
        other.set(signal, 2)
    with cu.ordering("unchecked"), pytest.raises(cu.BufferBorrowedError):
        other.set(signal, 2)
    with pytest.raises(
        cu.SignalError, match=r"never end: its last number is 1, set at tests.unit.test_sig"
    ):
        other.wait(signal, 2)
    other.wait(signal, 1)
    other.set(signal, 2)
    signal.wait(2)


def test_the_policy_wait_orders_sets(stream, other, signal, gate):
    gate.hold(stream)
    stream.set(signal, 1)
    with cu.ordering("wait"):
        other.set(signal, 2)
    gate.open()
    signal.wait(2)
    assert signal.value == 2


def test_the_host_sets(stream, other, signal, frame):
    signal.set(1)
    assert signal.value == 1
    other.wait(signal, 1)
    stream.set(signal, 2)
    words = (
        r"cannot set Signal 'ready' from the host:\n  it is being written by set on .*\n"
        "  and nothing orders this access after it"
    )
    with pytest.raises(cu.BufferBorrowedError, match=words):
        signal.set(3)
    signal.wait(2)
    signal.set(3)
    stream.set(signal, 4)
    signal.wait(4)
    assert signal.value == 4


def test_in_a_function(stream, other, signal):
    seen = []

    def function():
        seen.append(signal.value)
        signal.set(signal.value + 1)
        seen.append(signal.value)
        for call in (lambda: signal.wait(1), lambda: signal.at(1), signal.close):
            with pytest.raises(cu.HostFunctionError):
                call()

    stream.call(function)
    stream.synchronize()
    assert seen == [0, 1]
    assert signal.value == 1
    stream.set(signal, 2)
    stream.call(lambda: seen.append(signal.value))
    stream.synchronize()
    assert seen[2:] == [2]


def test_a_function_may_not_set_what_a_stream_sets(stream, signal):
    stream.set(signal, 1)
    token = stream.call(lambda: signal.set(2))  # nothing has told the host that the set is done
    with pytest.raises(cu.BufferBorrowedError, match="cannot set Signal 'ready' from the host"):
        token.wait()
    assert signal.value == 1


# ---- waits that would never end ----


def test_a_dead_wait_is_refused(stream, signal, unchanged):
    words = (
        r"a wait for Signal 'ready' at 1 would never end: nothing sets it. Queue the set first: st"
    )
    calls = (
        lambda: stream.wait(signal, 1),
        lambda: signal.wait(1),
        lambda: signal.wait(1, timeout=0),
        lambda: signal.at(1),
    )
    for call in calls:
        with unchanged(), pytest.raises(cu.SignalError, match=words):
            call()
    stream.set(signal, 1)
    with pytest.raises(cu.SignalError, match="at 2 would never end: its last number is 1, set at"):
        stream.wait(signal, 2)


def test_a_timeout(stream, signal, gate):
    gate.hold(stream)
    stream.set(signal, 1)
    words = r"the set of Signal 'ready' to 1, queued at tests.+:\d+, is not complete after 0"
    with pytest.raises(TimeoutError, match=words):
        signal.wait(1, timeout=0.01)
    with pytest.raises(TimeoutError):
        signal.wait(1, timeout=0)
    assert signal.value == 0
    gate.open()
    signal.wait(1, timeout=60)


def test_ctrl_c_ends_a_wait(stream, signal, gate):
    gate.hold(stream)
    stream.set(signal, 1)
    with interrupted():
        signal.wait(1)
    assert signal.value == 0
    gate.open()
    signal.wait(1)


def test_timeouts_are_checked_first(signal):
    with pytest.raises(ValueError, match="timeout is -1"):
        signal.wait(1, timeout=-1)


# ---- closing ----


def test_close_is_refused_while_a_set_is_unfinished(stream, other, signal, gate):
    gate.hold(stream)
    stream.set(signal, 1)
    other.wait(signal, 1)
    with pytest.raises(cu.BufferBorrowedError, match="cannot close Signal 'ready':\n  it is being"):
        signal.close()
    assert not signal.closed
    gate.open()
    signal.wait(1)


def test_a_closed_signal_is_refused_everywhere(stream, other, driver):
    with cu.Signal(name="over") as signal:
        stream.set(signal, 1)
        other.wait(signal, 1)
        token = signal.at(1)
        stream.synchronize()
    signal.close()
    assert signal.closed
    assert repr(signal) == "<Signal 'over' closed>"
    uses = [
        lambda: stream.set(signal, 2),
        lambda: stream.wait(signal, 1),
        lambda: signal.set(2),
        lambda: signal.wait(1),
        lambda: signal.at(1),
        lambda: signal.value,
        lambda: signal.address,
        signal.__enter__,
    ]
    for use in uses:
        with pytest.raises(cu.BufferClosedError, match=r"Signal 'over' was closed at"):
            use()
    assert signal.name == "over"
    del token


def test_a_dropped_signal_with_unfinished_sets(stream, other, gate, frame):
    signal = cu.Signal()
    gate.hold(stream)
    frame.fill_async(4, stream)
    stream.set(signal, 1)
    other.wait(signal, 1)
    del signal
    gc.collect()
    again = cu.Signal()  # its memory is not that of the first one
    frame.fill_async(5, other)
    gate.open()
    other.synchronize()
    assert again.value == 0
    assert frame[0] == 5


def test_a_wait_outlives_its_signal(stream, other, gate, frame):
    """A waiting thread keeps what it waits for."""
    signal = cu.Signal()
    gate.hold(stream)
    stream.set(signal, 1)
    waiting, answers = started(lambda: signal.wait(1))
    gate.open()
    waiting.join()
    signal.close()
    assert answers == [None]


# ---- arguments ----


@pytest.mark.parametrize("number", [1.0, "1", None, 1j])
def test_a_number_is_an_integer(stream, signal, number):
    calls = [
        lambda: stream.set(signal, number),
        lambda: signal.set(number),
        lambda: signal.wait(number),
        lambda: signal.at(number),
    ]
    for call in calls + [lambda: stream.wait(signal, number)] * (number is not None):
        with pytest.raises(TypeError, match="the number of a signal must be an integer, not"):
            call()


@pytest.mark.parametrize("number", [-1, 2**63, 2**64, -(2**100)])
def test_a_number_that_no_signal_has(stream, signal, number):
    for call in (
        lambda: stream.set(signal, number),
        lambda: signal.set(number),
        lambda: stream.wait(signal, number),
        lambda: signal.wait(number),
        lambda: signal.at(number),
    ):
        with pytest.raises(
            ValueError, match=rf"Signal 'ready' cannot be {number}: its number is f"
        ):
            call()


def test_integers_of_numpy(stream, other, signal):
    stream.set(signal, np.uint64(3))
    other.wait(signal, np.int8(2))
    signal.wait(np.uint8(3))
    assert signal.value == 3


def test_other_arguments(stream, signal, frame):
    with pytest.raises(TypeError, match=r"\(or a Signal, with its number\), not Signal"):
        stream.wait(signal)
    for thing in (frame, stream, stream.record(), None, 3):
        with pytest.raises(
            TypeError, match=r"stream\.set\(signal, n\) takes a Signal and a number"
        ):
            stream.set(thing, 1)
    with pytest.raises(TypeError, match=r"stream.wait\(signal, n\) takes a Signal .*not Event"):
        stream.wait(stream.record(), 1)
    with pytest.raises(TypeError, match="name must be a str"):
        cu.Signal(name=3)
    with pytest.raises(TypeError, match="device must be a Device"):
        cu.Signal(device=0)
    with pytest.raises(TypeError, match="exists already"):
        signal.__init__()
    with pytest.raises(TypeError, match="never initialized"):
        cu.Signal.__new__(cu.Signal).set(1)


def test_a_kernel_takes_it_as_shared(stream, signal):
    module = cu.Module(POLL)
    out = cu.LockedBuffer.zeros(1, "u8")
    signal.set(41)
    with pytest.raises(TypeError, match=r"read\(\) takes no signal.*cudadrv.shared\(signal\)"):
        cu.read(signal)
    token = module["peek"].launch(1, 1, cu.shared(signal), out, stream=stream)
    assert "kernel" not in repr(signal)
    token.wait()
    assert out[0] == 41


def test_a_kernel_that_uses_it_keeps_it_open(stream, signal, gate):
    out = cu.LockedBuffer.zeros(1, "u8")
    module = cu.Module(POLL)
    gate.hold(stream)
    module["peek"].launch(1, 1, cu.shared(signal), out, stream=stream)
    with pytest.raises(
        cu.BufferBorrowedError, match="cannot close Signal 'ready':\n  it is being us"
    ):
        signal.close()
    signal.set(3)  # the use of a kernel is not in the way of sets
    gate.open()
    stream.synchronize()
    assert out[0] == 3


POLL = """
.version 7.0
.target sm_50
.address_size 64
.visible .entry peek(.param .u64 signal, .param .u64 out) {
    .reg .u64 %a, %b, %n;
    ld.param.u64 %a, [signal];
    ld.param.u64 %b, [out];
    ld.volatile.global.u64 %n, [%a];
    st.global.u64 [%b], %n;
    ret;
}
"""


# ---- failures ----


@pytest.mark.cuda_software
def test_a_write_that_fails(stream, other, signal):
    testing.fail("cuStreamWriteValue64_v2", 801)
    with pytest.raises(cu.CudaError, match="cuStreamWriteValue64"):
        stream.set(signal, 1)
    assert repr(signal) == "<Signal 'ready': 0 reached>"
    with pytest.raises(cu.SignalError, match="nothing sets it"):
        other.wait(signal, 1)
    stream.set(signal, 1)
    signal.wait(1)


@pytest.mark.cuda_software
def test_an_event_that_is_not_recorded(stream, other, signal):
    """The number is set, but no wait can be ordered after this set."""
    testing.fail("cuEventRecord", 801)
    with pytest.raises(cu.CudaError, match="cuEventRecord"):
        stream.set(signal, 1)
    with pytest.raises(cu.SignalError, match="would never end"):
        other.wait(signal, 1)
    with pytest.raises(cu.SignalError, match="only grows"):
        stream.set(signal, 1)
    stream.set(signal, 2)
    signal.wait(1)
    assert signal.value == 2


@pytest.mark.cuda_software
def test_an_event_that_cannot_be_made(stream, signal):
    testing.fail("cuEventCreate", 2)
    with pytest.raises(cu.CudaError, match="cuEventCreate"):
        stream.set(signal, 1)
    stream.set(signal, 1)
    signal.wait(1)


@pytest.mark.cuda_software
def test_a_number_of_a_lost_context_is_not_reached(script, driver):
    """Nobody knows whether the device has set it."""
    if driver == "explore":
        pytest.skip("another process is not explored")
    script.quiet(
        """
    import cudadrv as cu
    from cudadrv import testing
    signal, stream = cu.Signal(), cu.Stream()
    stream.set(signal, 1)
    stream.synchronize()
    assert signal.value == 1
    stream.set(signal, 2)
    testing.fail("cuEventRecord", 719)
    try:
        stream.record()
    except cu.ContextLostError:
        pass
    calls = [lambda: signal.value, lambda: signal.wait(2), lambda: stream.wait(signal, 2)]
    for call in calls:
        try:
            found = call()
        except cu.ContextLostError:
            continue
        raise AssertionError(found)
    signal.wait(1)
    signal.close()
    """,
        CUDADRV_DRIVER="software",
        CUDADRV_SOFTWARE=f"schedule={driver}",
    )


def test_its_text(stream, signal, gate):
    gate.hold(stream)
    assert repr(signal) == "<Signal 'ready': 0 reached>"
    stream.set(signal, 3)
    assert repr(signal) == "<Signal 'ready': 0 reached, 3 queued>"
    gate.open()
    signal.wait(1)
    assert repr(signal) == "<Signal 'ready': 3 reached>"
    assert repr(cu.Signal()) == "<Signal: 0 reached>"
    assert signal.context is cu.Device(0).context
    assert signal.device == cu.Device(0)
    assert signal.address


# ---- threads ----


def test_two_threads_set_on_one_stream(stream, signal):
    """Each set is either larger than all before it, or refused: the number never decreases."""
    refused = []

    def set_many(numbers):
        for number in numbers:
            try:
                stream.set(signal, number)
            except cu.SignalError:
                refused.append(number)

    threads = [started(lambda first=first: set_many(range(first, 400, 2))) for first in (1, 2)]
    for thread, _ in threads:
        thread.join()
    assert all(answers == [None] for _, answers in threads)
    signal.wait(399 if 399 not in refused else 398)
    assert signal.value in (398, 399)


def test_two_threads_set_on_two_streams(stream, other, signal):
    done = []

    def set_many(mine, numbers):
        for number in numbers:
            try:
                mine.set(signal, number)
                done.append(number)
            except (cu.SignalError, cu.BufferBorrowedError):
                mine.wait(stream)
                mine.wait(other)

    threads = [
        started(lambda: set_many(stream, range(1, 300))),
        started(lambda: set_many(other, range(1, 300))),
    ]
    for thread, _ in threads:
        thread.join()
    assert all(answers == [None] for _, answers in threads)
    assert len(done) == len(set(done))
    signal.wait(max(done))
    assert signal.value == max(done)
