"""Runs programs in processes that are forked from a server, which has imported NumPy.

A short program of the tests takes most of its time to import NumPy. A request to the server is the
text of a program, its folder and environment, and the names of the pipes for its output and errors.
The server answers with the number of the process, and later with its exit status. In the process,
everything is as under ``python -c``, up to the end of the interpreter.
"""

import gc
import marshal
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Lock, Thread
from types import CodeType, TracebackType
from typing import Any

# A process that is forked runs `served`, and nothing of the server is left in its `__main__`.
SERVER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy, fork_server
del sys.path[0], sys, numpy
exec(fork_server.served(globals()))
"""


class ForkServer:
    """Starts a server, and asks it to run programs, one at a time."""

    def __init__(self, options: list[str], environment: Mapping[str, str]) -> None:
        self._lock = Lock()
        self._fixed = _fixed(environment)
        self._server = subprocess.Popen(
            [sys.executable, *options, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def can_run(self, environment: Mapping[str, str]) -> bool:
        """Whether the environment differs from the server's in variables of CUDA only.

        Python and the system's libraries read others, once at the start of a process.
        """
        return self._fixed == _fixed(environment)

    def run(
        self, program: str, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as `subprocess.run` does with ``capture_output=True, text=True``."""
        with self._lock:
            (read_output, output), (read_errors, errors) = os.pipe(), os.pipe()
            names = (f"/proc/{os.getpid()}/fd/{pipe}" for pipe in (output, errors))
            self._send((program, str(Path.cwd()), dict(environment), *names))
            process = self._receive()
            os.close(output)
            os.close(errors)
            try:
                texts = _read_both((read_output, read_errors), process, timeout)
            finally:
                status = self._receive()
        if texts is None:
            raise subprocess.TimeoutExpired(program, timeout)
        return subprocess.CompletedProcess(program, status, *texts)

    def close(self) -> None:
        self._server.communicate()

    def _send(self, request: tuple[Any, ...]) -> None:
        marshal.dump(request, self._server.stdin)  # type: ignore[arg-type]
        self._server.stdin.flush()  # type: ignore[union-attr]

    def _receive(self) -> int:
        return marshal.load(self._server.stdout)  # type: ignore[arg-type]


def _fixed(environment: Mapping[str, str]) -> dict[str, str]:
    changing = ("CUDA", "PYTEST_CURRENT_TEST")
    return {name: text for name, text in environment.items() if not name.startswith(changing)}


def _read_both(pipes: tuple[int, int], process: int, timeout: float) -> list[str] | None:
    """Read both pipes to their ends. After the time is up, end the process and return None."""
    texts = ["", ""]

    def read(which: int) -> None:
        with os.fdopen(pipes[which], encoding="utf-8") as pipe:
            texts[which] = pipe.read()

    readers = [Thread(target=read, args=(which,)) for which in (0, 1)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(timeout)
        if reader.is_alive():
            os.kill(process, signal.SIGKILL)
            return None
    return texts


def served(main: dict[str, Any]) -> CodeType:
    """Answer requests, to the end of the process. Return the program in each forked process."""
    del main["fork_server"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    gc.freeze()  # so that garbage collections of programs do not visit the objects of NumPy
    while True:
        try:
            program, folder, environment, *names = marshal.load(sys.stdin.buffer)
        except EOFError:
            sys.exit()
        pipes = [os.open(name, os.O_WRONLY) for name in names]
        process = os.fork()
        if process == 0:
            os.chdir(folder)
            _become_new(environment, pipes)
            return compile(program, "<string>", "exec", dont_inherit=True)
        for pipe in pipes:
            os.close(pipe)
        _answer(process)
        _answer(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


def _answer(number: int) -> None:
    marshal.dump(number, sys.stdout.buffer)
    sys.stdout.flush()


def _become_new(environment: dict[str, str], pipes: list[int]) -> None:
    """Make a forked process what a new one would be."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for new, old in enumerate((os.open(os.devnull, os.O_RDONLY), *pipes)):
        os.dup2(old, new)
        os.close(old)
    os.environ.clear()
    os.environ.update(environment)
    sys.excepthook = _without_the_server


def _without_the_server(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an exception without the lines of the server, from which the program is called."""
    while trace and (trace.tb_frame.f_back is None or trace.tb_frame.f_code is served.__code__):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)
