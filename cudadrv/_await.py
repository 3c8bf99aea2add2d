"""``await event``, and so of tokens and streams: one daemon thread that watches all of them.

Neither a callback from a driver thread, which could deadlock with the interpreter, nor a thread for
each ``await``. The thread only watches: what the host knows changes when the coroutine goes on.
"""

import asyncio
import threading
import time
from contextlib import suppress
from typing import Protocol

FIRST_PAUSE_S = 50e-6
LONGEST_PAUSE_S = 1e-3


class Watched(Protocol):
    """What can be awaited: an Event, as it was recorded then."""

    def _is_complete(self) -> bool: ...


Await = tuple[Watched, "asyncio.Future[None]"]


def completion(work: Watched) -> "asyncio.Future[None]":
    """Give a future of the running loop that is done when the work is complete.

    What goes wrong in asking becomes its exception.
    """
    future = asyncio.get_running_loop().create_future()
    _watcher.add((work, future))
    return future


class _Watcher:
    """The awaited operations, and the thread that asks for them while there are any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._new: list[Await] = []
        self._thread: threading.Thread | None = None

    def add(self, item: Await) -> None:
        with self._changed:
            self._new.append(item)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cudadrv-await", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        pending: list[Await] = []
        pause = FIRST_PAUSE_S
        while True:
            with suppress(MemoryError):  # somebody waits: try again
                if self._take_new(pending):
                    pause = FIRST_PAUSE_S
                # No name of this frame may keep an operation, and its buffers, alive while it
                # sleeps.
                pending[:] = [item for item in pending if not _settle(*item)]
            if pending:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def _take_new(self, pending: list[Await]) -> bool:
        """Move what was added to `pending`; sleep while there is nothing at all to do."""
        with self._changed:
            while not (self._new or pending):
                self._changed.wait()
            added = bool(self._new)
            pending += self._new
            self._new.clear()
            return added


def _settle(work: Watched, future: "asyncio.Future[None]") -> bool:
    """Whether nobody waits any more: it is complete or failed, was cancelled, or its loop ended."""
    failure = None
    if future.done():
        return True
    try:
        if not work._is_complete():
            return future.get_loop().is_closed()
    except Exception as error:
        failure = error.with_traceback(None)  # its frames would keep the buffers alive
    with suppress(RuntimeError):  # the loop was closed meanwhile
        future.get_loop().call_soon_threadsafe(_deliver, future, failure)
    return True


def _deliver(future: "asyncio.Future[None]", failure: Exception | None) -> None:
    if future.done():  # cancelled meanwhile
        return
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)


_watcher = _Watcher()
