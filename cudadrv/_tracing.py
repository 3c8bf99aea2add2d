"""What programs call to trace: `trace`. The records and the file are written by `_trace`."""

import atexit
import contextlib
import fcntl
import os
import stat
import sys
import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cudadrv import _environment, _trace
from cudadrv._errors import CudaWarning
from cudadrv._library import open_now
from cudadrv._memory import trace_live_memory

if TYPE_CHECKING:
    from cudadrv._trace_table import Summary

_turn = threading.Lock()  # held by the trace that is being written
# Its file, and the line that began it.
_current: tuple[str, str] | None = None


def _line() -> str:
    """Return the line that enters a block of this module, as messages name lines."""
    frame = sys._getframe(2)
    path = frame.f_code.co_filename
    with contextlib.suppress(OSError):  # the working directory may be gone
        path = path.removeprefix(f"{Path.cwd()}{os.sep}")
    return f"{path}:{frame.f_lineno}"


def _name_of_thread() -> str:
    return threading.current_thread().name


def _forget() -> None:
    global _turn, _current
    _turn, _current = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)


def _take_turn(name: str, where: str) -> None:
    """Take the turn, so that no other trace begins until `_end`."""
    global _current
    if not _turn.acquire(blocking=False):
        file, line = _current or ("another one", "a line of another thread")
        raise RuntimeError(
            f"cannot begin {name}: {file} was begun at {line}, and has not ended. A process"
            " writes one trace or profile at a time; end that one first"
        )
    _current = name, where


def _give_turn() -> None:
    global _current
    _current = None
    _turn.release()


def _begin(fd: int, name: str) -> None:
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    if error := _trace.begin(fd, f"{program} (cudadrv)", _name_of_thread):
        raise OSError(error, os.strerror(error), name)
    trace_live_memory()


def _end(name: str) -> None:
    error = _trace.end()
    _give_turn()
    if error:
        warnings.warn(
            f"the trace {name} ends early: {os.strerror(error)}. The program went on without it.",
            CudaWarning,
            stacklevel=3,
        )


def _abandon(fd: int) -> None:
    """Give up a trace that could not begin."""
    if _trace.is_on():
        _trace.end()
    if fd >= 0:
        os.close(fd)
    _give_turn()


def _open(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _empty(fd: int) -> None:
    if stat.S_ISREG(os.fstat(fd).st_mode):  # not a pipe or a terminal
        os.ftruncate(fd, 0)


class _Block:
    """A `with` block that is traced: `trace` and `profile` differ in the file."""

    __slots__ = ("__weakref__", "_fd", "_name", "_process")

    def __init__(self, name: str) -> None:
        self._fd = -1
        self._process = 0
        self._name = name

    def _open(self) -> int:
        raise NotImplementedError

    def _has_ended(self, fd: int) -> None:
        """Use the file, which is complete now. It is closed afterwards."""

    def __enter__(self) -> Self:
        """Begin the block."""
        open_now()  # first: the environment may want a trace that begins with the driver
        _take_turn(self._name, _line())
        fd = -1
        try:
            fd = self._open()
            _empty(fd)
            _begin(fd, self._name)
        except BaseException:
            _abandon(fd)
            raise
        self._fd, self._process = fd, os.getpid()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the block, and write the rest of the file. In a forked child, do nothing."""
        if self._process != os.getpid():
            return
        fd, self._fd = self._fd, -1  # no other thread comes between, and it ends once
        if fd >= 0:
            try:
                _end(self._name)
            finally:  # its warning may be an error
                try:
                    self._has_ended(fd)
                finally:
                    os.close(fd)

    def __del__(self) -> None:
        """End a block that was left without its end, such as that of a dropped generator."""
        if getattr(self, "_fd", -1) >= 0:
            self.__exit__(None, None, None)


class trace(_Block):
    """Write what cudadrv does in a ``with`` block to a file for Perfetto (https://ui.perfetto.dev).

    The trace has a track for each thread, with its operations and calls of the driver; for each
    stream, with its operations from the call until the host knows that they are complete; and for
    each buffer, with its borrows. Arrows lead from a call to its operation, and from a record of
    an event to the waits for it. Two counters show the bytes of live buffers and those that pools
    keep. A refusal is an event of its thread with the whole message.

    All threads of the process are traced. The file is written while the block runs, so it can be
    read up to the last tenth of a second however the process ends. A forked child writes nothing.

    Parameters
    ----------
    file : str or os.PathLike
        Usually ``something.pftrace``. A file of that name is replaced.

    Raises
    ------
    OSError
        At the begin of the block, if the file cannot be opened. If a write fails later, for example
        because the disk is full, the program goes on, and the end of the block warns once
        (`CudaWarning`).
    RuntimeError
        A trace is being written already, or this block is entered twice.
    DriverNotFoundError
        There is no driver.

    Blocks for some milliseconds at its begin, when the process traces for the first time, and at
    its end until the file is written. Waits for no work of the device.
    Driver functions: none.

    >>> with cudadrv.trace("run.pftrace"):
    ...     train()
    """

    __slots__ = ()

    def __init__(self, file: str | os.PathLike[str]) -> None:
        name = os.fspath(file)
        if not isinstance(name, str):
            raise TypeError(f"file must be a str or a path, not {type(file).__name__}")
        super().__init__(name)

    def _open(self) -> int:
        return _open(self._name)

    def __repr__(self) -> str:
        return f"<trace to {self._name}>"


class profile(_Block):
    """Measure what cudadrv does in a ``with`` block, and print it as a table.

    The profile counts and times operations by name and line, calls by line, driver functions, and
    waits by line and stream. It shows how many bytes copies have moved, and for which part of the
    time two or more streams had work in flight. On the software driver it also has the times in
    which operations ran. Refusals are listed with their messages.

    It is a trace in memory (see `trace`), of about 340 bytes for each call, in all threads.

    Raises
    ------
    RuntimeError
        A trace or a profile is being taken already, or this block is entered twice.
    DriverNotFoundError
        There is no driver.

    Blocks as `trace` does. Driver functions: none.

    >>> with cudadrv.profile() as p:
    ...     train()
    >>> print(p)
    """

    __slots__ = ("_data", "_found", "_lock")

    def __init__(self) -> None:
        # Held while the measurement ends and while its file is read, which another thread would
        # close meanwhile.
        self._lock = threading.RLock()
        self._data = b""
        self._found: Summary | None = None
        super().__init__("a profile")

    def _open(self) -> int:
        return os.memfd_create("cudadrv profile", os.MFD_CLOEXEC)

    def _has_ended(self, fd: int) -> None:
        self._data, self._found = _all_of(fd), None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the measurement. In a forked child, do nothing."""
        with self._alone():
            super().__exit__(kind, error, traceback)

    @property
    def summary(self) -> "Summary":
        """The figures, as a named record: ``str(profile)`` is the same as text.

        In the block, the figures are those up to now. Reading them takes about 30 microseconds for
        each call that was measured.
        """
        from cudadrv._trace_file import parse
        from cudadrv._trace_table import summary

        with self._alone():
            if taken := self._fd >= 0:
                _trace.flush()
            elif self._found is not None:
                return self._found
            data = _all_of(self._fd) if taken else self._data
        found = summary(parse(data))
        with self._alone():
            if not taken and data and self._data is data:
                self._found, self._data = found, b""
        return found

    def _alone(self) -> contextlib.AbstractContextManager[Any]:
        """Return the lock. In a forked child nobody would release it."""
        return self._lock if self._process == os.getpid() else contextlib.nullcontext()

    def __str__(self) -> str:
        from cudadrv._trace_table import table

        return table(self.summary)

    def __repr__(self) -> str:
        return "<profile, being taken>" if self._fd >= 0 else "<profile>"


def _all_of(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def begin_for_process() -> None:
    """Begin the trace that the environment variable CUDADRV_TRACE asks for.

    Its processes share the value of the variable. The first one that has the file locks it; another
    one adds its number to the name.
    """
    name = _environment.trace_file()
    fd = -1
    _take_turn(name, f"the environment variable {_environment.TRACE.name}")
    try:
        fd, name = _open_for_process(name)
        _empty(fd)
        _begin(fd, name)
    except OSError as error:
        _abandon(fd)
        warnings.warn(
            f"{_environment.TRACE.name}: no trace is written: {error}", CudaWarning, stacklevel=2
        )
        return
    process = os.getpid()

    def end() -> None:
        if process == os.getpid():
            _end(name)

    atexit.register(end)


def _open_for_process(name: str) -> tuple[int, str]:
    fd = _open(name)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        path = Path(name)
        name = str(path.with_name(f"{path.stem}.{os.getpid()}{path.suffix}"))
        fd = _open(name)
    return fd, name
