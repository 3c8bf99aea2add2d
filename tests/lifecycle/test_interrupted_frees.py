"""Ctrl-C in calls that free memory, for which the driver waits for all work of the device.

The work never ends before the signal: the gate holds it. Without the signal, the call would wait
for ever.
"""

import signal
import threading
from pathlib import Path

import pytest
from in_threads import started

import cudadrv as cu

PTX = Path(__file__).parent.with_name("kernels") / "kernels.ptx"


class Pressed(Exception):
    """Raised by the handler of the signal, as KeyboardInterrupt is by Ctrl-C."""


@pytest.fixture
def press(driver):
    """Sends a signal to this process soon."""

    def press(number, frame):
        raise Pressed

    former = signal.signal(signal.SIGALRM, press)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, former)


class Work:
    """Unfinished work of the device: of a stream, a closed stream, another thread's stream."""

    def __init__(self, gate, kind):
        self.gate = gate
        self.buffer = cu.DeviceBuffer(1 << 20, name="busy")
        self.leave = threading.Event()
        self.begun = threading.Event()
        self.thread = None
        if kind == "another context":
            with cu.Context.create(cu.Device(0)):
                self.begin(cu.Stream())
        elif kind == "another thread's":
            self.thread, _ = started(self.run)
            assert self.begun.wait()
        else:
            self.begin(cu.Stream())
            if kind == "closed":
                self.stream.close()
            elif kind == "dropped":
                del self.stream

    def begin(self, stream):
        self.stream, self.context = stream, stream.context
        self.gate.hold(stream)
        with stream.context:
            cu.DeviceBuffer(16).fill_async(1, stream)

    def run(self):
        self.begin(cu.Stream.per_thread())
        self.begun.set()
        self.leave.wait()
        cu.Stream.per_thread().synchronize()

    def end(self):
        self.gate.open()
        self.leave.set()
        if self.thread is not None:
            self.thread.join()
        self.context.synchronize()


@pytest.fixture(params=["open", "closed", "dropped", "another thread's", "another context"])
def begin(request, gate):
    """A function that begins unfinished work of the device, and returns its context."""
    begun = []

    def begin():
        begun.append(Work(gate, request.param))
        return begun[-1].context

    yield begin
    for work in begun:
        work.end()
    begun.clear()


def interrupted(press, call):
    def both():
        press()
        call()

    with pytest.raises(Pressed):
        both()


MADE = {
    "device": lambda: cu.DeviceBuffer(1 << 16, pooled=False),
    "locked": lambda: cu.LockedBuffer(1 << 16, pooled=False),
    "managed": lambda: cu.UnifiedBuffer(1 << 16, pooled=False),
    "growing": lambda: cu.DeviceBuffer(1 << 16, capacity=4 << 20),
    "shareable": lambda: cu.LockedBuffer(1 << 16, shareable=True),
    "in place": lambda: cu.LockedBuffer.from_memory(bytearray(1 << 16)),
    "module": lambda: cu.Module.from_file(PTX),
}


def is_closed(thing):
    return thing.closed if isinstance(thing, cu.Buffer) else "closed" in repr(thing)


@pytest.mark.parametrize("made", MADE)
def test_close(press, begin, gate, made):
    """A close that is interrupted changes nothing, and can be repeated."""
    thing = MADE[made]()
    begin()
    interrupted(press, thing.close)
    assert not is_closed(thing)
    gate.open()
    thing.close()
    assert is_closed(thing)


def test_shrink(press, begin, gate):
    buffer = cu.DeviceBuffer(8 << 20, capacity=16 << 20)
    begin()
    interrupted(press, lambda: buffer.shrink(10))
    assert buffer.count == 8 << 20
    gate.open()
    buffer.shrink(10)
    assert buffer.count == 10
    buffer.close()


def test_reap(press, begin, gate):
    buffer = cu.DeviceBuffer(1 << 16, pooled=False)
    begin()
    del buffer
    interrupted(press, cu.reap)
    gate.open()
    cu.reap()


def test_synchronize(press, begin, gate):
    interrupted(press, begin().synchronize)


def test_what_is_in_use_is_refused_before_any_wait(stream, gate):
    gate.hold(stream)
    buffer = cu.DeviceBuffer(1 << 16, capacity=4 << 20, name="b")
    other = cu.DeviceBuffer(1 << 16, pooled=False)
    for each in (buffer, other):
        each.fill_async(1, stream)
        with pytest.raises(cu.BufferBorrowedError):
            each.close()
    with pytest.raises(cu.BufferBorrowedError):
        buffer.shrink(1)
    gate.open()
    stream.synchronize()


@pytest.mark.cuda_software
def test_drops_never_wait_for_another_context(driver, gate):
    """A destructor does not free memory if the driver would wait for work."""
    with cu.Context.create(cu.Device(0)):
        stream = cu.Stream()
        gate.hold(stream)
        cu.DeviceBuffer(16).fill_async(1, stream)
    dropped = cu.DeviceBuffer(1 << 16, pooled=False)
    del dropped
    cu.Stream().synchronize()  # frees what can be freed
    gate.open()
    stream.synchronize()
    stream.context.synchronize()
