"""Fixtures for tests that talk to a driver library directly, through ctypes.

The same tests run on the software driver and, with ``--cuda-driver=cuda``, on a real one.
"""

import ctypes
import os
import shutil

import pytest

from .captures import Capture
from .client import Client, Library
from .kernels import TEXT
from .race_program import Program

SCHEDULES = ["eager", "lazy", "random"]


def _path():
    chosen = os.environ["CUDADRV_DRIVER"]
    if chosen == "cuda":
        return "libcuda.so.1"
    if os.sep in chosen:
        return chosen
    import cudadrv._softdriver

    return cudadrv._softdriver.__file__


@pytest.fixture(scope="session")
def library_path():
    return _path()


@pytest.fixture(scope="session")
def lib(library_path, tmp_path_factory):
    """The driver library, initialised, with the primary context of device 0 kept alive.

    Some tests need two devices. A real driver has the devices of the machine. In place of the
    software driver, this fixture loads a copy of it with two devices. The copy has its own state,
    so cudadrv can use the original meanwhile.
    """
    library = Library(library_path)
    if library.software:
        library = Library(shutil.copy(library_path, tmp_path_factory.mktemp("driver")))
        library.configure("devices=2")
    library.ok("cuInit", 0)
    context = ctypes.c_void_p()
    library.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    library.primary = context.value
    yield library
    library.ok("cuDevicePrimaryCtxRelease_v2", 0)


@pytest.fixture
def software(lib):
    """The library if it is the software driver; otherwise the test is skipped."""
    if not lib.software:
        pytest.skip("about the software driver only")
    return lib


@pytest.fixture(params=SCHEDULES)
def schedule(request, lib):
    """Each schedule of the software driver in turn. With a real driver the test runs once."""
    if not lib.software:
        if request.param != SCHEDULES[0]:
            pytest.skip("schedules are the software driver's")
        return None
    return request.param


@pytest.fixture
def client(lib, schedule):
    """A client of the driver that destroys the test's objects, and checks for leaks."""
    if lib.software:
        lib.configure(f"schedule={schedule},seed=1,fault=none")
    with Client(lib) as client:
        before = lib.counts()
        yield client
        client.close()
        assert lib.counts() == before


@pytest.fixture(params=[0, 2], ids=["global", "relaxed"])
def mode(request):
    """The mode of stream capture."""
    return request.param


@pytest.fixture
def capture(client, mode):
    """A stream that is being captured."""
    return Capture(client, mode)


@pytest.fixture
def program(software, schedule):
    software.configure(f"schedule={schedule},seed=3,fault=none,races=record")
    with Program(software) as program:
        program.ok("cuCtxSynchronize")
        software.forget_races()
        yield program
        for gate in program._gates:
            gate.open()
        program.ok("cuCtxSynchronize")
    software.forget_races()


@pytest.fixture
def lost(software, schedule):
    """A client in whose test the device may be lost. The driver is reset afterwards."""
    software.configure(f"schedule={schedule},seed=1,fault=none,kernel_faults=record")
    with Client(software) as client:
        client.kernels = client.module(TEXT)
        yield client
        client._undo.clear()
    software("cudadrvSoftReset")
    software.configure("instructions=4000000000,kernel_faults=print")
    context = ctypes.c_void_p()
    software.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    software.primary = context.value
