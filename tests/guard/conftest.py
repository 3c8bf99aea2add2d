"""Fixtures: a guard, what the host may do with a page, and programs that end early."""

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

import cudadrv as cu
from cudadrv import _guard

ROOT = Path(__file__).resolve().parents[2]
PAGE = os.sysconf("SC_PAGESIZE")
LIBC = ctypes.CDLL(None, use_errno=True)

# What is the same at the beginning of each program. `written()` queues work that writes `frames`.
BEGIN = """
import ctypes, sys
import cudadrv as cu

up, down = cu.Stream(name="up"), cu.Stream(name="down")
frames = cu.LockedBuffer(16384, name="frames")
work = cu.DeviceBuffer(16384, name="work")
work.fill(7)
address = frames.address

def written():
    return work.copy_to_async(frames, down)

def read():
    return work.copy_from_async(frames, up)
"""


@pytest.fixture
def guarded():
    with cu.guard() as guard:
        yield guard


@pytest.fixture
def no_other_guard(driver):
    if _guard.is_on():
        pytest.skip("--cuda-guard guards all tests")


@pytest.fixture
def rights():
    """A function that says what the host may do with the byte at an address.

    It asks by calls of the system, which end with EFAULT instead of a signal.
    """
    reading, writing = os.pipe()

    def call(function, *arguments):
        done = function(*arguments)
        assert done == 1 or ctypes.get_errno() == errno.EFAULT
        return done == 1

    def ask(address):
        if not call(LIBC.write, writing, ctypes.c_void_p(address), 1):
            return "none"
        may_write = call(LIBC.read, reading, ctypes.c_void_p(address), 1)
        if not may_write:
            os.read(reading, 1)
        return "all" if may_write else "read"

    yield ask
    os.close(reading)
    os.close(writing)


@pytest.fixture
def run_program(tmp_path, driver):
    """A function that runs a program in a guard. Returns its status, output, errors and text."""

    def run(text, *options, begin=BEGIN, guard="1", **environment):
        script = tmp_path / "program.py"
        script.write_text(begin + text)
        done = subprocess.run(
            [sys.executable, *options, script],
            env={**os.environ, "PYTHONPATH": str(ROOT), "CUDADRV_GUARD": guard, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=tmp_path,
            check=False,
        )
        done.program = begin + text
        return done

    return run
