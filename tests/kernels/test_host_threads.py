"""The software driver runs blocks that do not communicate in several host threads."""

import gc
import re

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

pytestmark = pytest.mark.cuda_software

HEAD = """.version 7.5
.target sm_75
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .f32 %f<3>;
    ld.param.u64 %rd1, [out]; cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 64, %r2;
    mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd1, %rd2; mov.u32 %r4, 0; mov.u32 %r5, 1;
    again: mad.lo.u32 %r5, %r5, 1664525, %r3; add.u32 %r4, %r4, 1;
    setp.lt.u32 %p1, %r4, 100; @%p1 bra again;
"""
ALONE = HEAD + "st.global.u32 [%rd2], %r5; ret; }"
ADDING = HEAD + "cvt.rn.f32.u32 %f1, %r5; red.global.add.f32 [%rd1], %f1; ret; }"
OUTSIDE = HEAD + "add.u64 %rd2, %rd2, 1048576; st.global.u32 [%rd2], %r5; ret; }"
BLOCKS = 300


def result(text: str, threads: object) -> bytes:
    with (
        testing.configured(f"threads={threads},seed=5"),
        cu.Module(text) as module,
        cu.Stream() as stream,
    ):
        kernel, out = module["k"], cu.DeviceBuffer.zeros(BLOCKS * 64, "u4")
        gc.collect()  # each driver call draws random numbers, also one in a destructor
        testing.configure("seed=5")
        kernel.launch(BLOCKS, 64, out, stream=stream)
        stream.synchronize()
        found = np.empty(BLOCKS * 64, "u4")
        out.copy_to(found)
    return found.tobytes()


@pytest.mark.parametrize("threads", ["auto", 2, 7, 64])
@pytest.mark.parametrize("text", [ALONE, ADDING])
def test_the_number_of_threads_does_not_matter(cuda_schedule, text, threads):
    assert result(text, threads) == result(text, 1)


@pytest.mark.parametrize("wrong", ["0", "65", "all", "-1", ""])
def test_what_is_no_number_of_threads(wrong):
    with pytest.raises(ValueError, match=f"threads must be auto or 1 to 64, not '{wrong}'"):
        testing.configure(f"threads={wrong}")


HELPERS = """
    import os, sys
    import numpy as np
    import cudadrv as cu
    from cudadrv import testing
    sys.path.insert(0, {folder!r})
    from test_host_threads import *
    def threads():
        return len(os.listdir("/proc/self/task"))
    testing.configure("schedule=lazy,threads=4")
    result(ADDING, 4)
    before = threads()
    result(ADDING, 4)
    assert threads() == before
    alone = result(ALONE, 4)
    assert threads() == before + 3, (threads(), before)
    assert result(ALONE, 4) == alone
    assert threads() == before + 3, (threads(), before)
"""


@pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
def test_helpers_start_only_for_blocks_that_do_not_communicate(script):
    folder = __file__.rpartition("/")[0]
    script.quiet(HELPERS.format(folder=folder))


FAULT = """
    import sys
    import cudadrv as cu
    from cudadrv import testing
    sys.path.insert(0, {folder!r})
    from test_host_threads import *
    testing.configure("kernel_faults=record,threads=4,schedule={schedule}")
    try:
        result(OUTSIDE, 4)
    except cu.ContextLostError:
        print(testing.kernel_fault())
"""


def test_each_run_reports_the_same_fault(script, cuda_schedule):
    folder = __file__.rpartition("/")[0]
    found = {script.quiet(FAULT.format(folder=folder, schedule=cuda_schedule)) for _ in range(3)}
    faults = {re.search(r"thread .* of block \(\d+, 0, 0\)", text)[0] for text in found}
    assert len(faults) == 1


@pytest.mark.parametrize("threads", [1, 4])
def test_races_with_blocks_of_all_threads_are_found(cuda_schedule, threads):
    """Data races with blocks in all host threads are found: each fill conflicts with one block."""
    with testing.configured(f"threads={threads}"), cu.Module(ALONE) as module:
        out = cu.DeviceBuffer.zeros(BLOCKS * 64, "u4")
        one, two = cu.Stream(), cu.Stream()
        for block in range(8):
            with cu.ordering("unchecked"):
                module["k"].launch(BLOCKS, 64, out, stream=one)
                out[block * 64 : block * 64 + 64].fill_async(1, two)
            one.synchronize()
            two.synchronize()
            assert len(testing.races()) == 1
            testing.forget_races()
