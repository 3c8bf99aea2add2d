"""Fixtures for tests on machines with other devices.

Each test runs a program on a software driver with its own settings.
"""

import textwrap
from collections.abc import Callable

import pytest

import cudadrv as cu

HEAD = """
import ctypes
import gc
import numpy as np
import cudadrv as cu
from cudadrv import testing

def refused(error, words, call):
    try:
        call()
    except error as found:
        assert words in str(found), found
        return str(found)
    raise AssertionError("not refused: " + words)

def hold(stream):
    'Let a stream wait until the item that this returns is 1.'
    flag = cu.LockedBuffer.zeros(1, "u4")
    wait = ctypes.CDLL(cu.driver_info().path).cuStreamWaitValue32_v2
    wait.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_uint, ctypes.c_uint]
    with stream.context:
        assert wait(stream.handle, flag.address, 1, 0) == 0
    return flag
"""
TWO = """
zero, one = cu.Device(0), cu.Device(1)
near, far = cu.Stream(device=zero), cu.Stream(device=one)
"""
SYNCHRONIZE = """
for device in [cu.Device(i) for i in range(cu.Device.count())]:
    device.synchronize()
"""
TAIL = f"""{SYNCHRONIZE}
assert not testing.races(), testing.races()
"""


@pytest.fixture
def machine(driver, script) -> Callable[..., None]:
    """A function that runs a program with some settings of the software driver.

    The program must print nothing and have no data race.
    """

    def machine(settings: str, program: str, tail: str = TAIL) -> None:
        head = HEAD + TWO if "devices=2" in settings else HEAD
        script.quiet(
            head + textwrap.dedent(program) + tail,
            # Exploring repeats what this process does. The other one has one schedule.
            CUDADRV_SOFTWARE=f"schedule={'lazy' if driver == 'explore' else driver},{settings}",
        )

    return machine


@pytest.fixture
def pair(driver, script, machine) -> Callable[..., None]:
    """A function that runs a program on two devices of the software driver, or on two GPUs."""

    def pair(program: str) -> None:
        if driver != "cuda":
            machine("devices=2", program)
            return
        if cu.Device.count() < 2:
            pytest.skip("needs two devices")
        script.quiet(HEAD + TWO + textwrap.dedent(program) + SYNCHRONIZE)

    return pair
