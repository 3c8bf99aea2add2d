"""Two drivers, one suite: which one tests run on, under which schedules, and that none leaks."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCHEDULES = ("eager", "lazy", "random")
collect_ignore = ["external"]  # has an environment of its own: make external
HERE = Path(__file__).parent
# These need no driver, or start their own.
WITHOUT_DRIVER = (
    *(
        "architecture",
        "conformance",
        "docs",
        "loading",
        "ownership",
        "packaging",
        "softdriver",
        "typing",
    ),
)


def pytest_addoption(parser):
    parser.addoption(
        "--driver",
        choices=("software", "cuda"),
        default="software",
        help="run on the software driver (default) or on the system's libcuda.so.1",
    )


def pytest_configure(config):
    os.environ["CUDADRV_DRIVER"] = config.getoption("--driver")
    os.environ.pop("CUDADRV_SOFTWARE", None)
    # A job in the background of a shell ignores Ctrl-C, and so would every test of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    real = config.getoption("--driver") == "cuda"
    absent = "software_only" if real else "gpu"
    skip = pytest.mark.skip(reason=f"{absent}: not on the {'real' if real else 'software'} driver")
    for item in items:
        if item.get_closest_marker(absent):
            if absent == "gpu" and os.environ.get("CUDADRV_REQUIRE_GPU") == "1":
                pytest.exit("CUDADRV_REQUIRE_GPU=1 and the driver is the software driver", 1)
            item.add_marker(skip)


def pytest_generate_tests(metafunc):
    folder = Path(metafunc.module.__file__).relative_to(HERE).parts[0]
    if folder not in WITHOUT_DRIVER:
        metafunc.fixturenames.append("driver")
        real = metafunc.config.getoption("--driver") == "cuda"
        metafunc.parametrize("driver", ["cuda"] if real else SCHEDULES, indirect=True)


@pytest.fixture
def driver(request) -> Iterator[str]:
    """The driver, in a clean state: its schedule's name, or "cuda". Fails a test that leaks."""
    import cudadrv as cu

    device = cu.Device(0)
    _warm(device)
    if request.param == "cuda":
        before = len(cu.live_buffers())
        yield request.param
        _settle(device)
        assert len(cu.live_buffers()) == before, f"leaked: {cu.memory_report()}"
        return

    from cudadrv import testing

    testing.configure(f"schedule={request.param},seed=7,fault=none")
    before = testing.live_objects()
    yield request.param
    testing.configure("fault=none")
    _settle(device)
    if not request.node.get_closest_marker("leaks"):
        after = testing.live_objects()
        assert after == before, f"leaked: {before} became {after}. {cu.memory_report()}"


@pytest.fixture(autouse=True)
def _on_the_driver(request) -> None:
    """Use `driver` in every test that it is parametrized for, also where nobody names it.

    Pytest drops it from tests with parameters of their own.
    """
    if "driver" in getattr(getattr(request.node, "callspec", None), "params", ()):
        request.getfixturevalue("driver")


def _warm(device) -> None:
    """Make what a context keeps for ever: its streams for blocking calls and for frees."""
    import cudadrv as cu

    if not getattr(_warm, "done", False):
        cu.DeviceBuffer(1, stream=cu.Stream())
        cu.DeviceBuffer(1).fill(0)
        _settle(device)
        _warm.done = True


def _settle(device) -> None:
    import cudadrv as cu

    gc.collect()
    device.synchronize()
    cu.reap()


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
    """Inside, none of these driver functions may be called (software driver only)."""
    from cudadrv import testing

    before = [testing.calls(name) for name in functions]
    yield
    assert [testing.calls(name) for name in functions] == before


@pytest.fixture
def unchanged():
    """A context manager that fails if the driver was called inside it."""
    return no_driver_calls


class Script:
    """Runs programs in processes of their own, for what a process does not survive."""

    def __init__(self, driver: str):
        self.environment = dict(os.environ, PYTHONPATH=str(HERE.parent))
        self.environment["CUDADRV_DRIVER"] = "cuda" if driver == "cuda" else "software"
        if driver in SCHEDULES:
            self.environment["CUDADRV_SOFTWARE"] = f"schedule={driver},seed=7"

    def run(self, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def quiet(self, program: str, **environment: str) -> str:
        """Run a program that must end well and write nothing but its output, which is returned."""
        done = self.run(program, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture
def script(request) -> Script:
    """Programs in processes of their own, under the test's schedule if it has one."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    return Script(parameters.get("driver", ""))
