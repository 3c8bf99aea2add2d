"""``await`` of events, tokens and streams: one daemon thread watches all awaited work.

The thread polls the driver, because a callback of the driver could deadlock with the interpreter.
One thread watches all work, because a thread for each ``await`` would cost too much. The thread
updates no clock; each coroutine updates the host's clock when it is resumed.
"""

import asyncio
import threading
import time
from _thread import start_new_thread
from contextlib import suppress
from typing import Protocol

FIRST_PAUSE_S = 50e-6
LONGEST_PAUSE_S = 1e-3


class Watched(Protocol):
    """The part of an Event that the watching thread uses."""

    def _is_complete(self) -> bool: ...


Await = tuple[Watched, "asyncio.Future[None]"]


def completion(work: Watched) -> "asyncio.Future[None]":
    """Return a future of the running loop that is done when the work is complete.

    If polling fails, the future gets the exception.
    """
    future = asyncio.get_running_loop().create_future()
    _watcher.add((work, future))
    return future


class _Watcher:
    """The awaited operations, and the thread that polls them."""

    def __init__(self) -> None:
        # Blocks use the lock and not the Condition, whose `__enter__` is Python code: Ctrl-C in it
        # would leave the lock taken for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._new: list[Await] = []
        self._thread: int | None = None

    def add(self, item: Await) -> None:
        with self._lock:
            self._new.append(item)
            if self._thread is None:
                # Not a `threading.Thread`: Ctrl-C in its `start` leaves locks taken. If Ctrl-C
                # comes before the assignment, the next call starts a second thread, which shares
                # the work.
                self._thread = start_new_thread(self._run, ())
            self._changed.notify()

    def _run(self) -> None:
        threading.current_thread().name = "cudadrv-await"  # for debuggers
        pending: list[Await] = []
        pause = FIRST_PAUSE_S
        while True:
            with suppress(MemoryError):  # coroutines are waiting, so the next iteration tries again
                if self._take_new(pending):
                    pause = FIRST_PAUSE_S
                # No local variable may keep an operation, and its buffers, alive during the sleep.
                pending[:] = [item for item in pending if not _settle(*item)]
            if pending:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def _take_new(self, pending: list[Await]) -> bool:
        """Move new items to `pending`; return whether there were any. Blocks if both are empty."""
        with self._lock:
            while not (self._new or pending):
                self._changed.wait()
            added = bool(self._new)
            pending += self._new
            self._new.clear()
            return added


def _settle(work: Watched, future: "asyncio.Future[None]") -> bool:
    """Check an awaited operation, and settle its future if it is complete or has failed.

    Returns whether the operation needs no further checks. It also needs none if the future was
    cancelled, or if its event loop was closed.
    """
    failure = None
    if future.done():
        return True
    try:
        if not work._is_complete():
            return future.get_loop().is_closed()
    except Exception as error:
        failure = error.with_traceback(None)  # frames of the traceback would keep buffers alive
    with suppress(RuntimeError):  # the loop was closed meanwhile
        future.get_loop().call_soon_threadsafe(_deliver, future, failure)
    return True


def _deliver(future: "asyncio.Future[None]", failure: Exception | None) -> None:
    if future.done():  # the future was cancelled meanwhile
        return
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)


_watcher = _Watcher()
