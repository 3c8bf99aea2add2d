"""Fixtures of all tests: the driver, streams, a gate that blocks streams, other processes."""

import ctypes
import gc
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fork_server import ForkServer
from in_threads import started
from scripts import OPTIONS, Script

pytest_plugins = ["pytest_cudadrv", "pytester"]

collect_ignore = ["external"]  # these tests run in another environment: make external
# A project of its own, which the packaging tests build and test.
collect_ignore += ["packaging/downstream"]
HERE = Path(__file__).parent
# Folders whose tests need no driver or start their own.
WITHOUT_DRIVER = (
    *("architecture", "conformance", "docs", "external", "loading", "ownership", "packaging"),
    *("performance", "plugin", "run", "softdriver", "threads", "toolkit", "typing"),
)


def pytest_configure():
    os.environ.pop("CUDADRV_SOFTWARE", None)
    # Tests start thousands of Python processes, which would compile the same modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # NumPy's other threads spin at first: a third of the CPU time of a short process. Tests
    # multiply only small matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Ctrl-C is ignored in background jobs of a shell, where the tests of Ctrl-C would otherwise
    # fail.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Folders whose tests compile much or wait often, and take minutes. They run first, so that at the
# end short tests are left, which all processors can share. Each worker of pytest-xdist begins with
# an equal part of the tests. The first worker begins with the first of these folders, because the
# tests of one worker share what they compile, and the second worker with the others.
LONGEST = (("packaging", "softdriver"), ("threads",))
# In these tests threads end with unfinished work. NVIDIA's driver never lets such a thread end if
# the process has freed memory in certain ways before (docs/driver.md).
FIRST = HERE / "lifecycle" / "test_thread_ends.py"


def pytest_collection_modifyitems(items):
    found = {item: _part_of(item) for item in items}
    part = len(items) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    rest = [item for item in items if found[item] is None]
    for number in range(len(LONGEST)):
        own = [item for item in items if found[item] == number]
        rest[number * part : number * part] = own
    rest.sort(key=lambda item: item.path != FIRST)
    items[:] = rest


def _part_of(item):
    """Return the number of the worker that is to begin with a test, or None."""
    folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
    return next((number for number, each in enumerate(LONGEST) if folder in each), None)


def pytest_collection():
    """Collect tests without garbage collections, which would visit all tests found so far."""
    gc.disable()


def pytest_collection_finish():
    """Exclude the collected tests from the many garbage collections that tests make later.

    All tests stay alive until the end, and are ten times as many objects as everything else.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    # Programs of oracles make many objects and few cycles. With Python's threshold of 700, a third
    # of their time is spent on collections.
    gc.set_threshold(20_000)


_setups = itertools.count(1)


def pytest_runtest_setup(item):
    """Also exclude objects that earlier tests have left: modules, and pytest's objects per test.

    Otherwise each garbage collection visits them. A worker of pytest-xdist even keeps the reports
    that it has sent, which are dropped here.
    """
    if hasattr(item.config, "workerinput"):
        item.config.pluginmanager.get_plugin("terminalreporter").stats.clear()
    if next(_setups) % 50 == 0:
        gc.collect()
        gc.freeze()


def pytest_collectstart(collector):
    """Make all tests outside of WITHOUT_DRIVER use the fixture `driver`."""
    if isinstance(collector, pytest.Module):
        folder = collector.path.relative_to(HERE).parts[0]
        if folder not in WITHOUT_DRIVER:
            collector.add_marker(pytest.mark.usefixtures("driver"))


@pytest.fixture
def driver(cuda_checked, cuda_schedule) -> str:
    """A clean driver. The value is the name of its schedule, or "cuda".

    Leaks and data races fail the test.
    """
    return cuda_schedule


class Gate:
    """A gate blocks streams until it is opened: they wait until the host writes a flag."""

    def __init__(self):
        import cudadrv as cu

        if not cu.driver_info().is_software:
            # Destructors of other libraries' objects may wait for the device, so they run now.
            gc.collect()
        self.flag = cu.LockedBuffer.zeros(1, "u4", name="gate")
        self.library = ctypes.CDLL(cu.driver_info().path)
        self.wait = self.library.cuStreamWaitValue32_v2
        self.wait.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_uint, ctypes.c_uint]

    def hold(self, stream) -> None:
        """Make later work of the stream wait until `open`. The engine does not know about this."""
        with stream.device:
            status = self.wait(stream.handle, self.flag.address, 1, 0)
        assert status == 0, f"cuStreamWaitValue32: {status}"

    def open(self) -> None:
        if not self.flag.closed:
            self.flag[0] = 1

    def close(self) -> None:
        """Open the gate, and close its memory after the streams have read it."""
        self.open()
        self.flag.device.synchronize()
        self.flag.close()


@pytest.fixture
def gate(driver) -> Iterator[Gate]:
    """A `Gate`. It is opened at the end of the test in any case."""
    gate = Gate()
    yield gate
    # Needed, because pytest keeps the fixture's value alive until after the check for leaks.
    gate.close()


@pytest.fixture
def unpooled(driver) -> Iterator[None]:
    """Without pools: memory of closed and dropped buffers is released to the driver."""
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
    """Fail if one of these driver functions is called in the block.

    Not checked on a real driver.
    """
    from cudadrv import driver_info, testing

    if not driver_info().is_software:
        yield
        return
    before = [testing.calls(name) for name in functions]
    yield
    assert [testing.calls(name) for name in functions] == before


@pytest.fixture
def unchanged():
    """A context manager that fails if the driver (or one of these functions) is called in it."""
    return no_driver_calls


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer(OPTIONS, {**os.environ, "PYTHONPATH": str(HERE.parent)})
    yield server
    server.close()


@pytest.fixture
def script(fork_server) -> Script:
    """Runs programs in new processes, under the test's schedule if the test has one."""
    return Script(fork_server)


@pytest.fixture
def in_a_thread() -> Callable[[Callable[[], Any]], Any]:
    """A function that calls a function in a new thread, and returns its result or its exception."""

    def in_a_thread(function: Callable[[], Any]) -> Any:
        thread, answers = started(function)
        thread.join()
        return answers[0]

    return in_a_thread
