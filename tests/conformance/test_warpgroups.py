"""Faults of kernels that multiply with wgmma."""

import pytest

from .client import ILLEGAL_ADDRESS, SUCCESS
from .test_kernel_faults import ILLEGAL_INSTRUCTION, LAUNCH_TIMEOUT, fault

pytestmark = pytest.mark.cuda_software

TEXT = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry multiply()
{{
    .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>;
    .shared .align 1024 .b8 tile[4096];
    mov.u32 %r1, %tid.x;
    mov.b64 %rd1, 0x1000080000;
    mov.b64 %rd2, %rd1;
    setp.ne.u32 %p1, %r1, %r1;
    {before}
    wgmma.fence.sync.aligned;
    {guard} wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd1, %rd2,
        %p1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ret;
}}
"""
SECOND = "setp.ge.u32 %p2, %r1, 32; setp.lt.and.u32 %p2, %r1, 64, %p2;"  # the second warp
FAULTS = {
    "half a warpgroup": (64, "", "", ILLEGAL_INSTRUCTION, "the block has 2 from warp 0"),
    "half a warp": (128, "setp.lt.u32 %p2, %r1, 16;", "@%p2", ILLEGAL_INSTRUCTION, "32 lanes"),
    "descriptors that differ": (
        128,
        "cvt.u64.u32 %rd3, %r1; shr.u64 %rd3, %rd3, 5; add.u64 %rd2, %rd2, %rd3;",
        "",
        ILLEGAL_INSTRUCTION,
        "the descriptor of B must be the same",
    ),
    "predicates that differ": (
        128,
        "setp.lt.u32 %p1, %r1, 16;",
        "",
        ILLEGAL_INSTRUCTION,
        "scale-d must be the same",
    ),
    "beyond shared memory": (
        128,
        "mov.b64 %rd2, 0x10000800f8;",
        "",
        ILLEGAL_ADDRESS,
        "read of 16 bytes at 0x1000 in shared memory, which has 4096 bytes",
    ),
    "another wgmma": (
        128,
        f"""{SECOND} @!%p2 bra join;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd1, %rd2, %p1,
            1, 1, 0, 0;
        join:""",
        "",
        ILLEGAL_INSTRUCTION,
        "is at another wgmma",
    ),
    "a warp that has ended": (128, f"{SECOND} @%p2 exit;", "", LAUNCH_TIMEOUT, "hangs"),
}


def test_a_whole_warpgroup(lost, software):
    lost.kernels = lost.module(TEXT.format(before="", guard="").encode())
    assert fault(lost, "multiply", block=128) == SUCCESS


@pytest.mark.parametrize("case", FAULTS)
def test_faults(lost, software, case):
    threads, before, guard, status, text = FAULTS[case]
    lost.kernels = lost.module(TEXT.format(before=before, guard=guard).encode())
    assert fault(lost, "multiply", block=threads) == status
    assert text in software.fault_text()
    assert "wgmma" in software.fault_text()
