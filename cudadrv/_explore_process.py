"""Starts a command again and again, for `python -m cudadrv explore`.

If the command is one process that has done nothing its children could not share, it stays in its
first call of the driver and forks a child for each run there (softdriver/api/explore_server.h).
"""

import contextlib
import os
import selectors
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cudadrv._run import NOT_FOUND, RunError

PEER = struct.Struct("3i")  # process, user and group of the other end of a socket
PIPE, STATUS = struct.Struct("=QQ"), struct.Struct("=i")  # as explore_server.cpp has them
CHUNK = 1 << 16
POLL_S = 0.005  # between two looks at a process that has closed its output


class TooSlowError(Exception):
    """A run did not end in time."""


class Ended(NamedTuple):
    """A process that has ended: its status as of ``subprocess``, and its output."""

    status: int
    output: bytes


class _Server(NamedTuple):
    """A process that forks a child for each run.

    ``output`` is what it had written before its first call.
    """

    process: subprocess.Popen[bytes]
    connection: socket.socket
    pipe: int
    output: bytes


class Processes:
    """Runs a command, each time as a new process or as a child of its first process."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float
    ) -> None:
        self.command, self.environment, self.seconds = list(command), dict(environment), seconds
        self.path = folder / "server"
        self.server: _Server | None = None
        self.listener: socket.socket | None = socket.socket(socket.AF_UNIX)
        try:
            self.listener.bind(os.fspath(self.path))
            self.listener.listen()
        except OSError:  # the path is too long for a socket
            self.starts_anew()

    @property
    def forks(self) -> bool:
        """Whether runs are children of one process."""
        return self.server is not None

    def starts_anew(self) -> None:
        """End the server. From now on, each run is a new process."""
        self._ends_listening()
        if self.server is not None:
            server, self.server = self.server, None
            server.connection.close()
            _end(server.process)
            os.close(server.pipe)

    def _ends_listening(self) -> None:
        if self.listener is not None:
            self.listener.close()
            self.listener = None
            self.path.unlink(missing_ok=True)

    def run(self) -> Ended:
        """Run the command once. Raises TooSlowError if that takes too long."""
        deadline = time.monotonic() + self.seconds
        if self.server is not None:
            return self._run_in_child(self.server, deadline)
        pipe, output = os.pipe()
        try:
            process = self._start(output)
        except BaseException:
            os.close(pipe)
            raise
        finally:
            os.close(output)
        try:
            ended = self._followed(process, pipe, deadline)
        except BaseException:
            _end(process)
            os.close(pipe)
            raise
        if self.server is not None:
            return self._run_in_child(self.server, deadline)
        os.close(pipe)
        return ended

    def _start(self, output: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        except FileNotFoundError:
            raise RunError(
                f"cannot run {self.command[0]!r}: there is no such file", NOT_FOUND
            ) from None
        except OSError as error:
            raise RunError(f"cannot run {self.command[0]!r}: {error.strerror}") from None

    def _followed(self, process: subprocess.Popen[bytes], pipe: int, deadline: float) -> Ended:
        """Read the output until the process has ended, or has become the server."""
        output = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            if self.listener is not None:
                selector.register(self.listener, selectors.EVENT_READ)
            is_open = True
            while is_open or process.poll() is None:
                wait = _left(deadline)
                for key, _ in selector.select(wait if is_open else min(wait, POLL_S)):
                    if key.fileobj is self.listener:
                        self.server = self._accepted(process, pipe, output)
                        if self.server is not None:
                            self._ends_listening()  # processes that a run starts find nobody
                            return Ended(0, b"")
                    elif chunk := os.read(pipe, CHUNK):
                        output += chunk
                    else:
                        selector.unregister(pipe)
                        is_open = False
        return Ended(process.wait(), bytes(output))

    def _accepted(
        self, process: subprocess.Popen[bytes], pipe: int, output: bytearray
    ) -> _Server | None:
        """Answer a process that calls the driver; return it if it becomes the server."""
        assert self.listener is not None
        connection, _ = self.listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        ready = b""
        # What a child of the command does may not be all that the command does.
        if PEER.unpack(peer)[0] == process.pid:
            status = os.fstat(pipe)
            with contextlib.suppress(OSError):
                connection.sendall(PIPE.pack(status.st_dev, status.st_ino))
                ready = connection.recv(1)
        if not ready:
            connection.close()
            return None
        os.set_blocking(pipe, False)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(pipe, CHUNK):
                output += chunk
        return _Server(process, connection, pipe, bytes(output))

    def _run_in_child(self, server: _Server, deadline: float) -> Ended:
        pipe, output = os.pipe()
        try:
            try:
                socket.send_fds(server.connection, [b"r"], [output])
            finally:
                os.close(output)
            parts = [server.output]
            with selectors.DefaultSelector() as selector:
                selector.register(pipe, selectors.EVENT_READ)
                while True:
                    _wait(selector, deadline)
                    if not (chunk := os.read(pipe, CHUNK)):
                        break
                    parts.append(chunk)
                selector.register(server.connection, selectors.EVENT_READ)
                selector.unregister(pipe)
                _wait(selector, deadline)
            answer = server.connection.recv(STATUS.size)
        finally:
            os.close(pipe)
        if len(answer) != STATUS.size or STATUS.unpack(answer)[0] == -1:
            raise RunError("the system could not fork the command")
        return Ended(os.waitstatus_to_exitcode(STATUS.unpack(answer)[0]), b"".join(parts))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TooSlowError
    return left


def _wait(selector: selectors.BaseSelector, deadline: float) -> None:
    if not selector.select(_left(deadline)):
        raise TooSlowError


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
