"""alloca, stacksave and stackrestore."""

import numpy as np
import pytest

from .running import WORD, run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)


def words(body: str, before: str = "") -> list[int]:
    zeros = np.zeros(32, "u4")
    return run(WORD + body, zeros, zeros, before=before, capability=75).tolist()


def test_each_lane_has_memory_of_its_own():
    """Lanes allocate different amounts, write all of this memory, and sum it up again."""
    body = """add.u32 %r2, %r1, 1; mul.wide.u32 %rd4, %r2, 4; alloca.u64 %rd5, %rd4, 16;
    alloca.u64 %rd8, %rd4; st.local.u32 [%rd8], 1000000;
    mov.u64 %rd6, %rd5; mov.u32 %r3, 0;
    write: st.local.u32 [%rd6], %r3; add.u64 %rd6, %rd6, 4; add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, %r2; @%p1 bra write;
    mov.u32 %r3, 0; mov.u32 %r4, 0; cvta.local.u64 %rd6, %rd5;
    read: ld.u32 %r5, [%rd6]; add.u32 %r4, %r4, %r5; add.u64 %rd6, %rd6, 4;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r2; @%p1 bra read;
    st.global.u32 [%rd3], %r4;"""
    assert words(body) == [n * (n + 1) // 2 for n in range(32)]


@pytest.mark.parametrize("alignment", [8, 16, 64, 256])
def test_alignment(alignment):
    body = f"""alloca.u64 %rd4, 4; alloca.u64 %rd5, 12, {alignment}; and.b64 %rd6, %rd5,
    {alignment - 1}; cvt.u32.u64 %r2, %rd6; st.global.u32 [%rd3], %r2;"""
    assert words(body) == [0] * 32


def test_restoring_makes_room_again():
    """stackrestore releases memory: without it, 2,000 allocations of 512 bytes would not fit.

    The position to restore depends on what was read, because ptxas would otherwise restore it
    before the write. The write would then be below the stack.
    """
    body = """mov.u32 %r2, 0; again: stacksave.u64 %rd4; alloca.u64 %rd5, 512;
    cvta.local.u64 %rd6, %rd5; st.volatile.u32 [%rd6+508], %r2; ld.volatile.u32 %r3, [%rd6+508];
    sub.u32 %r4, %r3, %r2; cvt.u64.u32 %rd7, %r4; add.u64 %rd4, %rd4, %rd7;
    stackrestore.u64 %rd4; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 2000; @%p1 bra again;
    st.global.u32 [%rd3], %r3;"""
    assert words(body) == [1999] * 32


CALLED = """.func (.param .b32 r) fill(.param .b32 n) {
    .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %rd<4>; .local .b32 own;
    ld.param.u32 %r1, [n]; st.local.u32 [own], %r1; alloca.u64 %rd1, 64; mov.u32 %r2, 0;
    again: mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd1, %rd2; st.local.u32 [%rd2], %r1;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 16; @%p1 bra again;
    ld.local.u32 %r3, [%rd1+60]; ld.local.u32 %r4, [own]; add.u32 %r3, %r3, %r4;
    st.param.b32 [r], %r3; ret; }
"""


@pytest.mark.cuda_software  # on an H100 and an H200, the call changes the caller's memory
def test_a_called_function_leaves_the_callers_memory_alone():
    body = """alloca.u64 %rd4, 128; st.local.u32 [%rd4], %r1; st.local.u32 [%rd4+124], %r1;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], 77; call (b), fill, (a);
    ld.param.b32 %r2, [b]; } ld.local.u32 %r3, [%rd4]; ld.local.u32 %r4, [%rd4+124];
    add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; st.global.u32 [%rd3], %r2;"""
    assert words(body, CALLED) == [154 + 2 * lane for lane in range(32)]
