"""How the calling thread treats subnormal numbers makes no difference to kernels."""

import ctypes
import ctypes.util
import platform

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

from .running import WORD, run

NOTHING = np.zeros(32, "u4")
FLUSHING = 0x8040  # bits of the register MXCSR: subnormal operands and results become 0


class Environment(ctypes.Structure):
    """fenv_t of the C library on x86-64."""

    _fields_ = (("others", ctypes.c_uint8 * 28), ("mxcsr", ctypes.c_uint32))


@pytest.fixture
def flushing():
    """Makes the thread flush subnormal numbers, as programs that are compiled with -ffast-math."""
    if not cu.driver_info().is_software or platform.machine() != "x86_64":
        pytest.skip("about the software driver on x86-64")
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    before, now = Environment(), Environment()
    library.fegetenv(ctypes.byref(before))
    library.fegetenv(ctypes.byref(now))
    now.mxcsr |= FLUSHING
    yield lambda: library.fesetenv(ctypes.byref(now))
    library.fegetenv(ctypes.byref(now))
    library.fesetenv(ctypes.byref(before))
    assert now.mxcsr & FLUSHING == FLUSHING  # a launch has left it as it was


@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_the_mode_of_the_calling_thread_does_not_matter(flushing, ftz):
    """Under the schedule `lazy`, kernels run in the thread that waits for them."""
    body = f"""mov.b32 %f1, 0f00400000; mov.f32 %f2, 0f3F000000; mul.rn{ftz}.f32 %f3, %f1, %f2;
    fma.rn{ftz}.f32 %f4, %f1, %f2, %f1; {WORD} mov.b32 %r2, %f3; mov.b32 %r3, %f4;
    add.u32 %r2, %r2, %r3; st.global.u32 [%rd3], %r2;"""
    testing.configure("schedule=lazy")
    flushing()
    found = run(body, NOTHING, NOTHING)
    assert (found == (0 if ftz else 0x00200000 + 0x00600000)).all()
