"""Fixtures that run each test under all schedules of the software driver, and check for leaks."""

import ctypes
import gc
import os
from pathlib import Path

import pytest

# For the processes of these tests: NumPy's other threads spin at first.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Suites of run_suites.py, which need a checkout or an environment of their own.
collect_ignore = ["ocelot", "programs", "triton_kernels", "zluda"]
SCHEDULES = ("eager", "lazy", "random")
# The kinds of driver objects that are counted. Libraries are not, because cuda.core never unloads
# them.
KINDS = (
    *("device", "async", "host", "managed", "registered", "reservations", "backings"),
    *("streams", "events", "graphs", "execs", "objects", "modules", "links"),
)


@pytest.fixture(scope="session")
def scale():
    """The PTX of a kernel `scale` that multiplies n numbers."""
    return Path(__file__).with_name("scale.ptx").read_bytes()


@pytest.fixture(scope="session")
def library():
    """The libcuda.so.1 that the packages load. It must be the software driver."""
    library = ctypes.CDLL("libcuda.so.1")
    library.cudadrvSoftCount.restype = ctypes.c_ulonglong
    library.cudadrvSoftConfigure.argtypes = [ctypes.c_char_p]
    assert library.cudadrvSoftConfigure(b"devices=2,memory=64MiB") == 0
    return library


@pytest.fixture(autouse=True, params=SCHEDULES)
def schedule(request, library):
    """The name of the schedule."""

    def live():
        gc.collect()
        library.cudadrvSoftDrain()
        return {kind: library.cudadrvSoftCount(kind.encode()) for kind in KINDS}

    settings = f"schedule={request.param},seed=3"
    assert library.cudadrvSoftConfigure(settings.encode()) == 0
    before = live()
    gc.freeze()  # so that the next collection need not visit the objects of all packages
    yield request.param
    if (left := live()) != before:
        gc.unfreeze()  # an older object may keep something of this test
        left = live()
    assert left == before


@pytest.fixture
def device(schedule):
    """A `Device` of cuda.core, made current."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    return device


@pytest.fixture
def stream(device):
    """A `Stream` of cuda.core."""
    stream = device.create_stream()
    yield stream
    stream.sync()
    stream.close()
