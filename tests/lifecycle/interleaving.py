"""Tools for calls in several threads, and for calls that interrupt another call at any point."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from in_threads import until_it_waits
from limits import PATIENCE

import cudadrv as cu

PLACES = 60  # more garbage collections than any call here can have


@contextmanager
def at_collection(number: int, action: Callable[[], Any]) -> Iterator[None]:
    """Run `action` at the nth garbage collection in the block, which can be at nearly any point.

    Finalizers run at a collection, and other threads may run meanwhile. From Python 3.12 on,
    collections happen only between Python instructions, so they cannot interrupt a call of the
    library.
    """
    left = (number + 1) // 2

    def count(phase: str, _info: dict[str, int]) -> None:
        nonlocal left
        if phase == "start":
            left -= 1
            if left == 0:
                gc.set_threshold(0)
                action()

    before = gc.get_threshold()
    gc.callbacks.append(count)
    gc.set_threshold(1)
    # A collection happens at every second allocation. For odd numbers, one more list shifts the
    # collections by one allocation.
    shift = [[] for _ in range(number % 2)]
    try:
        yield
        shift.clear()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(count)


class Held:
    """A thread inside a driver call that blocks until the gate is opened.

    It copies between two page-locked buffers on a blocking stream. The driver blocks in this call,
    so the thread holds the issue lock of all blocking streams of the context.
    """

    def __init__(self, gate: Any) -> None:
        self.gate = gate
        self.stream = cu.Stream(blocking=True)
        self.buffers = [cu.LockedBuffer.zeros(64) for _ in range(2)]
        gate.hold(self.stream)
        self.thread = threading.Thread(target=self._copy)
        self.thread.start()
        self.still_held(self.thread)

    def _copy(self) -> None:
        self.buffers[0].copy_from_async(self.buffers[1], self.stream)

    @staticmethod
    def still_held(thread: threading.Thread) -> None:
        """Wait until a thread is blocked."""
        until_it_waits(thread)
        assert thread.is_alive()

    def end(self) -> None:
        self.gate.open()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Run `work(index)` in many threads at once, and raise an exception that one of them raised."""
    failures = []
    start = threading.Barrier(count)

    def run(index: int) -> None:
        try:
            start.wait()
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def filled_by(stream: cu.Stream) -> cu.LockedBuffer:
    """Make a buffer that the stream is filling, and so borrows."""
    buffer = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, stream)
    return buffer


def fill_after(buffer: cu.LockedBuffer, stream: cu.Stream) -> cu.Token:
    """Fill the buffer on another stream under "wait"."""
    with cu.ordering("wait"):
        return buffer.fill_async(2, stream)
