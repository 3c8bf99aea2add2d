"""What programs call to guard pages: `guard`. The pages are protected by `_guard`."""

import os
import threading
from types import TracebackType
from typing import Self

from cudadrv import _guard
from cudadrv._library import open_now
from cudadrv._memory import guard_live_memory

_lock = threading.RLock()  # a destructor may end a guard at any time
_entered: set[int] = set()  # the blocks that are entered, in all threads, by their `id`
_WHOLE_PROCESS = 0


def _forget() -> None:
    global _lock
    _lock = threading.RLock()
    _entered.clear()


os.register_at_fork(after_in_child=_forget)


def _begin(block: int) -> None:
    with _lock:
        if not _entered:
            try:
                _guard.begin()
                guard_live_memory()
            except BaseException:
                _guard.end()
                raise
        _entered.add(block)


def _end(block: int) -> None:
    with _lock:
        if block in _entered:
            _entered.discard(block)
            if not _entered:
                _guard.end()


class guard:
    """Protect the pages of page-locked buffers in a ``with`` block while GPU work uses them.

    From the call that queues an operation until the host knows that the operation is complete, the
    pages that it writes are inaccessible, and those that it only reads are read-only. Whatever
    accesses them too early, such as C code, a kept address or another library, ends the process
    with a message on standard error: the line of the access, the operation with its line, and the
    wait that is missing. Calls of the system, such as ``file.readinto``, raise OSError (EFAULT).

    A page is protected if all its bytes are in use. All threads of the process are guarded. Blocks
    may be nested; the outermost one counts. A forked child is not guarded.

    Raises RuntimeError if this block is entered twice, and DriverNotFoundError if there is no
    driver. See docs/guard.md.

    Does not block. Driver functions: none.

    >>> with cudadrv.guard():
    ...     run_tests()
    """

    __slots__ = ("__weakref__", "_process")

    def __init__(self) -> None:
        self._process = 0

    def __enter__(self) -> Self:
        """Begin the block."""
        open_now()
        if self._process == os.getpid():
            raise RuntimeError("this guard is entered already; make another one: cudadrv.guard()")
        self._process = os.getpid()
        try:
            _begin(id(self))
        except BaseException:
            self._process = 0
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the block: the host can use all pages again. In a forked child, do nothing."""
        if self._process == os.getpid():
            self._process = 0
            _end(id(self))

    def __del__(self) -> None:
        """End a block that was left without its end, such as that of a dropped generator."""
        if getattr(self, "_process", 0):
            self.__exit__(None, None, None)

    @property
    def unguarded(self) -> list[str]:
        """The buffers that could not be guarded, and why: at most 100 texts.

        Those of the guard that is in force or, if there is none, of the last one.
        """
        return _guard.unguarded()

    def __repr__(self) -> str:
        return f"<guard, {'entered' if self._process else 'not entered'}>"


def guard_process() -> None:
    """Begin the guard that the environment variable CUDADRV_GUARD asks for."""
    _begin(_WHOLE_PROCESS)
