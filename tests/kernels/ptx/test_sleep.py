"""nanosleep: PTX allows up to twice the time that is asked for. GPUs sleep for about that time."""

import numpy as np
import pytest

import cudadrv as cu

from .running import WORD, run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

MILLISECOND = 1_000_000  # the longest sleep
HEAD = ".version 8.0\n.target sm_75\n.address_size 64\n"
SLEEPER = (
    HEAD
    + """.visible .entry sleeper(.param .u32 times)
{
    .reg .b32 %r<3>; .reg .pred %p;
    ld.param.u32 %r1, [times];
again:
    nanosleep.u32 1000000;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p, %r1, 0;
    @%p bra again;
    ret;
}
"""
)


def took(blocks, threads, sleeps):
    """Run a kernel whose threads sleep `sleeps` times for 1 ms. Returns its duration in ms."""
    with cu.Module(SLEEPER) as module, cu.Stream() as stream:
        begin, end = cu.Event(timing=True), cu.Event(timing=True)
        stream.record(begin)
        module["sleeper"].launch(blocks, threads, np.uint32(sleeps), stream=stream)
        stream.record(end)
        end.synchronize()
        return end.elapsed_ms(begin)


def test_a_kernel_sleeps():
    assert took(1, 1, 20) > 10


def test_warps_sleep_at_the_same_time():
    """64 warps that sleep for 10 ms do not take 64 times as long as one of them."""
    assert 5 < took(8, 256, 10) < 32 * took(1, 1, 10)


def test_the_clock_goes_on_in_sleep():
    body = f"""{WORD} mov.u64 %rd4, %clock64; nanosleep.u32 {MILLISECOND};
    nanosleep.u32 {MILLISECOND}; mov.u64 %rd5, %clock64; sub.u64 %rd6, %rd5, %rd4;
    cvt.u32.u64 %r2, %rd6; st.global.u32 [%rd3], %r2;"""
    assert (run(body, np.zeros(1), np.zeros(32, "u4")) > MILLISECOND // 2).all()
