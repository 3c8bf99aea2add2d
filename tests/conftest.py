"""What the tests share: the driver, streams, something that holds them, other processes."""

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from in_threads import started
from limits import PATIENCE

pytest_plugins = ["pytest_cudadrv", "pytester"]

collect_ignore = ["external"]  # has an environment of its own: make external
HERE = Path(__file__).parent
# These need no driver, or start their own.
WITHOUT_DRIVER = (
    *("architecture", "conformance", "docs", "external", "loading", "ownership", "packaging"),
    *("performance", "plugin", "softdriver", "toolkit", "typing"),
)


def pytest_configure():
    os.environ.pop("CUDADRV_SOFTWARE", None)
    # A job in the background of a shell ignores Ctrl-C, and so would every test of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collectstart(collector):
    """Every other test uses `driver`, also where nobody names it."""
    if isinstance(collector, pytest.Module):
        folder = collector.path.relative_to(HERE).parts[0]
        if folder not in WITHOUT_DRIVER:
            collector.add_marker(pytest.mark.usefixtures("driver"))


@pytest.fixture
def driver(cuda_checked, cuda_schedule) -> str:
    """The driver, in a clean state: its schedule's name, or "cuda". No test may leak or race."""
    return cuda_schedule


class Gate:
    """Holds streams until it is opened: they wait for the host to write a flag."""

    def __init__(self):
        import cudadrv as cu

        self.flag = cu.LockedBuffer.zeros(1, "u4", name="gate")
        self.library = ctypes.CDLL(cu.driver_info().path)
        self.wait = self.library.cuStreamWaitValue32_v2
        self.wait.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_uint, ctypes.c_uint]

    def hold(self, stream) -> None:
        """Let later work of the stream wait until `open`. The engine does not see it."""
        with stream.device:
            status = self.wait(stream.handle, self.flag.address, 1, 0)
        assert status == 0, f"cuStreamWaitValue32: {status}"

    def open(self) -> None:
        if not self.flag.closed:
            self.flag[0] = 1

    def close(self) -> None:
        """Open it, and give its memory back when no stream looks at it any more."""
        self.open()
        self.flag.device.synchronize()
        self.flag.close()


@pytest.fixture
def gate(driver) -> Iterator[Gate]:
    """Something that holds streams; opened at the end in any case."""
    gate = Gate()
    yield gate
    gate.close()  # pytest keeps the fixture's value for longer than the check for leaks


@pytest.fixture
def unpooled(driver) -> Iterator[None]:
    """What buffers leave goes back to the driver as soon as that may be, and not to a pool."""
    import cudadrv as cu

    pools = cu.Device(0).context.pools
    former = [(pool, pool.limit_bytes) for pool in (pools.device, pools.locked, pools.unified)]
    for pool, _ in former:
        pool.limit_bytes = 0
    yield
    for pool, limit in former:
        pool.limit_bytes = limit


@pytest.fixture
def stream(driver):
    import cudadrv as cu

    stream = cu.Stream()
    yield stream
    if not stream.closed:
        stream.synchronize()
        stream.close()


@pytest.fixture
def other(driver):
    """A second stream."""
    import cudadrv as cu

    stream = cu.Stream()
    yield stream
    if not stream.closed:
        stream.synchronize()
        stream.close()


@contextmanager
def no_driver_calls(*functions: str):
    """Inside, none of these driver functions may be called; a real driver does not tell."""
    from cudadrv import driver_info, testing

    if not driver_info().is_software:
        yield
        return
    before = [testing.calls(name) for name in functions]
    yield
    assert [testing.calls(name) for name in functions] == before


@pytest.fixture
def unchanged():
    """A context manager that fails if the driver was called inside it."""
    return no_driver_calls


class Script:
    """Runs programs in processes of their own, for what a process does not survive."""

    def run(self, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
            env={**os.environ, "PYTHONPATH": str(HERE.parent), **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def quiet(self, program: str, **environment: str) -> str:
        """Run a program that must end well and write nothing but its output, which is returned."""
        done = self.run(program, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def refused_after_fork(self, head: str, calls: str, last: str, parent: str) -> None:
        """Each of these calls, apart by "|", is a ForkedError in a child forked after `head`.

        `last` is what the child does then, and `parent` looks how it ended.
        """
        each = [call.strip() for line in calls.strip().splitlines() for call in line.split("|")]
        self.quiet(
            head
            + f"""
    child = os.fork()
    if child == 0:
        missed = []
        for call in {each!r}:
            try:
                eval(call)
            except cu.ForkedError:
                continue
            except BaseException as error:
                missed.append((call, repr(error)))
            else:
                missed.append((call, "nothing"))
        {last}
        for miss in missed:
            print(*miss, file=sys.stderr)
        sys.stderr.flush()
        os._exit(bool(missed))
    {parent}
"""
        )


@pytest.fixture
def script() -> Script:
    """Programs in processes of their own, under the test's schedule if it has one."""
    return Script()


@pytest.fixture
def in_a_thread() -> Callable[[Callable[[], Any]], Any]:
    """What a function gives or raises in a new thread."""

    def in_a_thread(function: Callable[[], Any]) -> Any:
        thread, answers = started(function)
        thread.join()
        return answers[0]

    return in_a_thread
