"""Operands that add a number to a register, as NVIDIA's compiler accepts them; cache policies."""

import numpy as np
import pytest

from .running import WORD, run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

lane = np.arange(32)
# Each text sets %r2.
SUMS = {
    "mov": ("mov.u32 %r2, %r1+5;", lane + 5),
    "a negative number": ("mov.u32 %r2, %r1+-1;", lane - 1),
    "of 16 bits": ("cvt.u16.u32 %h1, %r1; mov.u16 %h2, %h1+65535; cvt.u32.u16 %r2, %h2;",
                   (lane - 1) & 0xFFFF),
    "of 64 bits": ("cvt.u64.u32 %rd4, %r1; mov.u64 %rd5, %rd4+0x500000001; shr.u64 %rd6, %rd5, 32;"
                   "add.u64 %rd5, %rd5, %rd6; cvt.u32.u64 %r2, %rd5;", lane + 6),
    "arithmetic": ("mad.lo.u32 %r2, %r1+1, 10, %r1+7;", 11 * lane + 17),
    "a conversion": ("cvt.rn.f32.u32 %f1, %r1+1; cvt.rzi.u32.f32 %r2, %f1;", lane + 1),
    "a comparison": ("setp.eq.u32 %p1, %r1+1, 4; selp.u32 %r2, %r1+1, 0, %p1;",
                     np.where(lane == 3, 4, 0)),
    "a shuffle": ("shfl.sync.idx.b32 %r2, %r1+100, 3, 31, -1;", 103 + 0 * lane),
    "a guard": ("mov.u32 %r2, 9; setp.gt.u32 %p1, %r1, 20; @%p1 mov.u32 %r2, %r1+1;",
                np.where(lane > 20, lane + 1, 9)),
}  # fmt: skip


@pytest.mark.parametrize("way", SUMS)
def test_a_number_is_added(way):
    body, expected = SUMS[way]
    found = run(f"{body} {WORD} st.global.u32 [%rd3], %r2;", np.zeros(1), np.zeros(32, "u4"))
    assert found.tolist() == (expected & 0xFFFFFFFF).tolist()


def test_a_store_adds_a_number():
    """A store adds a number to the value of a register. The register keeps its value."""
    body = f"{WORD} st.global.u32 [%rd3], %r1+1; st.global.u32 [%rd3+128], %r1;"
    found = run(body, np.zeros(1), np.zeros((2, 32), "u4"))
    assert found.tolist() == [(lane + 1).tolist(), lane.tolist()]


@pytest.mark.parametrize(
    "create",
    [
        "createpolicy.fractional.L2::evict_last.b64 %rd5, 1.0;",
        "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %rd5;",
        "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd5, [%rd3], 4, %r2;",
    ],
)
def test_accesses_with_a_cache_policy(create):
    body = f"""mov.u32 %r2, 128; {WORD} {create} st.global.L2::cache_hint.u32 [%rd3], %r1, %rd5;
    ld.global.L2::cache_hint.u32 %r3, [%rd3], %rd5; add.u32 %r3, %r3, 1;
    st.global.u32 [%rd3], %r3;"""
    assert run(body, np.zeros(1), np.zeros(32, "u4")).tolist() == (lane + 1).tolist()
