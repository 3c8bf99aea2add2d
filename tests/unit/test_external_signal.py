"""Signals that others set, too: kernels, other processes, the host after a stream waits."""

import asyncio
import gc
import pickle
import threading

import pytest
from in_threads import interrupted, started

import cudadrv as cu
from cudadrv import testing

COUNT = 16


@pytest.fixture
def signal(driver):
    signal = cu.Signal(external=True, name="turn")
    yield signal
    if signal.value < 100:
        release(signal, 100)  # nothing waits for ever, even if a test fails
        assert signal.value == 100
    cu.Device(0).synchronize()
    signal.close()


@pytest.fixture
def frame(driver):
    return cu.LockedBuffer.zeros(COUNT, "i4", name="frame")


def test_the_host_sets_it_after_the_stream_waits(stream, signal, frame):
    assert signal.external
    stream.wait(signal, 1)
    token = frame.fill_async(5, stream)
    with pytest.raises(TimeoutError):
        token.wait(timeout=0.01)
    signal.set(1)
    token.wait()
    assert frame[0] == 5


def test_what_is_behind_an_open_wait_is_borrowed(stream, signal, frame):
    stream.wait(signal, 1)
    frame.fill_async(5, stream)
    with pytest.raises(cu.BufferBorrowedError, match="is being written by fill_async"):
        frame[0] = 3
    signal.set(1)
    stream.synchronize()
    frame[0] = 3


def test_other_streams_cannot_wait_behind_it(stream, other, signal, frame, unchanged):
    before = stream.record()
    stream.wait(signal, 1)
    token = frame.fill_async(5, stream)
    event = stream.record()
    words = (
        r"is behind the wait of Stream \d+ for Signal 'turn' at 1, queued at .*, which may never"
    )
    for thing in (token, event, stream):
        with unchanged("cuStreamWaitEvent"), pytest.raises(cu.SignalError, match=words):
            other.wait(thing)
    with cu.ordering("wait"), unchanged("cuStreamWaitEvent"):
        with pytest.raises(cu.SignalError, match=words):
            frame.fill_async(6, other)
        with pytest.raises(cu.SignalError, match=words):
            frame[0] = 3
    stream.wait(event)  # its own work
    other.wait(before)
    signal.set(1)
    other.wait(token)
    frame.fill_async(6, other)
    other.synchronize()


def test_a_value_that_the_program_has_seen_ends_it(stream, other, signal):
    stream.wait(signal, 7)
    event = stream.record()
    release(signal, 7)
    with pytest.raises(cu.SignalError):  # it is set, but nothing has told the program
        other.wait(event)
    assert signal.value == 7
    other.wait(event)


# A GPU may run two streams of a process in one hardware queue. Then the work that sets the number
# stands behind the wait and never runs. This has happened on an H200.
@pytest.mark.cuda_software
def test_a_kernel_sets_it(stream, other, signal):
    module = cu.Module(STORE)
    setter = cu.Stream()
    stream.wait(signal, 7)
    event = stream.record()
    module["put"].launch(1, 1, cu.shared(signal), 7, stream=setter)
    setter.synchronize()
    with pytest.raises(cu.SignalError):  # it is set, but nothing has told the program
        other.wait(event)
    assert signal.value == 7
    other.wait(event)


@pytest.mark.cuda_software
def test_a_set_of_another_stream_ends_it_when_it_is_seen(stream, other, signal):
    third = cu.Stream()
    stream.wait(signal, 1)
    event = stream.record()
    other.set(signal, 1)
    with pytest.raises(cu.SignalError, match="which may never end"):
        third.wait(event)
    signal.wait(1)
    third.wait(event)
    third.synchronize()


def test_a_set_behind_the_wait_does_not_end_it(stream, other, signal):
    stream.wait(signal, 1)
    stream.set(signal, 2)
    with pytest.raises(cu.SignalError, match="which may never end"):
        other.wait(signal, 2)
    with pytest.raises(cu.BufferBorrowedError):
        other.set(signal, 3)
    with pytest.raises(cu.BufferBorrowedError, match="cannot set Signal 'turn' from the host"):
        signal.set(1)  # the program has a set that is not known to be complete
    release(signal, 1)
    stream.synchronize()
    assert signal.value == 2


def release(signal, number):
    """Set a number as another process would."""
    import ctypes

    ctypes.c_uint64.from_address(signal.address).value = number


def test_sets_of_this_process_are_edges(stream, other, signal, frame):
    frame.fill_async(1, stream)
    stream.set(signal, 1)
    other.wait(signal, 1)
    frame.fill_async(2, other)
    signal.wait(1)
    other.synchronize()
    assert frame[0] == 2


def test_it_only_grows(stream, signal):
    release(signal, 5)
    for call in (lambda: stream.set(signal, 5), lambda: signal.set(4)):
        with pytest.raises(cu.SignalError, match="it only grows, and is 5 already"):
            call()
    stream.set(signal, 6)
    signal.wait(6)


@pytest.mark.parametrize("kind", ["blocking", "legacy"])
def test_streams_that_the_legacy_stream_waits_for(signal, kind):
    stream = cu.Stream.legacy() if kind == "legacy" else cu.Stream(blocking=True)
    with pytest.raises(
        cu.SignalError, match="cannot wait for Signal 'turn' at 1: nothing that is q"
    ):
        stream.wait(signal, 1)
    stream.set(signal, 1)
    stream.wait(signal, 1)


def test_close_is_refused_while_a_stream_waits(stream, signal):
    stream.wait(signal, 1)
    with pytest.raises(
        cu.BufferBorrowedError, match=r"cannot close Signal 'turn':\n.* used by wait"
    ):
        signal.close()
    signal.set(1)
    stream.synchronize()


def test_a_dropped_signal_lives_while_a_stream_waits(stream, driver):
    signal = cu.Signal(external=True)
    stream.wait(signal, 1)
    text = pickle.dumps(signal)
    del signal
    gc.collect()
    again = pickle.loads(text)
    again.set(1)
    stream.synchronize()
    again.close()


def test_closing_and_allocating_never_wait_behind_it(stream, other, signal, unpooled):
    """The host that has to set the number is not blocked."""
    stream.wait(signal, 1)
    used = cu.DeviceBuffer.zeros(COUNT, pooled=False)
    other.synchronize()
    used.fill_async(1, other).wait()
    behind = cu.DeviceBuffer(COUNT, stream=stream)
    behind.fill_async(1, stream)
    used.close()
    for _ in range(300):
        cu.LockedBuffer(COUNT, pooled=False)
        cu.Stream()
    with pytest.raises(cu.SignalError, match="this call would wait for the wait of Stream"):
        cu.reap()
    del behind
    gc.collect()
    cu.DeviceBuffer(COUNT, stream=other).close()
    signal.set(1)
    stream.synchronize()


def test_a_wait_of_the_host(signal):
    thread, answers = started(lambda: signal.wait(3))
    with pytest.raises(
        TimeoutError, match=r"Signal 'turn' is not set to 3 after 0\.01 s\. Nothing"
    ):
        signal.wait(3, timeout=0.01)
    signal.set(3)
    thread.join()
    assert answers == [None]
    signal.wait(3, timeout=0)


def test_ctrl_c(signal):
    with interrupted():
        signal.wait(1)


def test_await(signal):
    async def main():
        asyncio.get_running_loop().call_later(0.02, signal.set, 2)
        await signal.at(2)
        assert signal.value == 2

    asyncio.run(main())


def test_a_kernel_sets_it_for_the_host(stream, signal):
    module = cu.Module(STORE)
    module["put"].launch(1, 1, cu.shared(signal), 9, stream=stream)
    signal.wait(9)
    assert signal.value == 9


@pytest.mark.cuda_software
def test_a_wait_that_fails(stream, other, signal):
    testing.fail("cuStreamWaitValue64_v2", 801)
    with pytest.raises(cu.CudaError, match="cuStreamWaitValue64"):
        stream.wait(signal, 1)
    other.wait(stream)  # nothing is open


def test_pickles(signal, driver):
    assert pickle.loads(pickle.dumps(signal)) is signal
    closed = cu.Signal(name="here")
    with pytest.raises(TypeError, match=r"Signal 'here' cannot be sent .*external=True"):
        pickle.dumps(closed)
    gone = cu.Signal(external=True)
    text = pickle.dumps(gone)
    gone.close()
    with pytest.raises(cu.BufferClosedError):
        pickle.dumps(gone)
    del gone
    gc.collect()
    with pytest.raises(cu.OwnershipError):
        pickle.loads(text)


def test_a_thread_waits_while_another_closes(stream, driver):
    signal = cu.Signal(external=True, name="over")
    over = threading.Event()

    def wait():
        over.set()
        signal.wait(1)

    thread, answers = started(wait)
    over.wait()
    signal.close()
    thread.join()
    assert isinstance(answers[0], cu.BufferClosedError)


STORE = """
.version 7.0
.target sm_50
.address_size 64
.visible .entry put(.param .u64 signal, .param .u64 number) {
    .reg .u64 %a, %n;
    ld.param.u64 %a, [signal];
    ld.param.u64 %n, [number];
    st.volatile.global.u64 [%a], %n;
    ret;
}
"""
