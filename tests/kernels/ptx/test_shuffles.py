"""shfl.sync whose lanes, and whose segments, are in registers and differ from lane to lane."""

import numpy as np
import pytest

from .running import run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

WARPS = 64
# Each lane has three words in the input: its value, and the operands b and c of its shuffle.
READ = """mov.u32 %r2, %ctaid.x; mad.lo.u32 %r2, %r2, 32, %r1; mul.wide.u32 %rd4, %r2, 12;
add.u64 %rd4, %rd2, %rd4; mul.wide.u32 %rd3, %r2, 8; add.u64 %rd3, %rd1, %rd3;
ld.global.u32 %r3, [%rd4]; ld.global.u32 %r4, [%rd4+4]; ld.global.u32 %r5, [%rd4+8];"""


def source_of(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The source lane, and whether it is in the segment, as the PTX manual computes them."""
    offset, clamp, segment = b & 31, c & 31, c >> 8 & 31
    last = lane & segment | clamp & ~segment
    source = {
        "up": lane - offset,
        "down": lane + offset,
        "bfly": lane ^ offset,
        "idx": lane & segment | offset & ~segment,
    }[mode]
    inside = source >= last if mode == "up" else source <= last
    return source if inside else lane, inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_lanes_in_registers(mode):
    random = np.random.default_rng(3)
    given = random.integers(0, 1 << 32, (WARPS, 32, 3), dtype="u4")
    body = f"""{READ} shfl.sync.{mode}.b32 %r6|%p1, %r3, %r4, %r5, -1; selp.u32 %r7, 1, 0, %p1;
    st.global.u32 [%rd3], %r6; st.global.u32 [%rd3+4], %r7;"""
    found = run(body, given, np.zeros((WARPS, 32, 2), "u4"), blocks=WARPS)
    wanted = []
    for warp in given.tolist():
        sources = [source_of(mode, lane, b, c) for lane, (_, b, c) in enumerate(warp)]
        wanted.append([[warp[source][0], int(inside)] for source, inside in sources])
    assert found.tolist() == wanted


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_lanes_in_registers_of_half_a_warp(mode):
    """The lanes that take no part keep the values of their registers."""
    given = np.random.default_rng(4).integers(0, 1 << 32, (WARPS, 32, 3), dtype="u4")
    given[..., 1] &= 15
    given[..., 2] = 0x1000 if mode == "up" else 0x101F  # two segments of 16 lanes
    body = f"""{READ} mov.u32 %r6, 77; setp.lt.u32 %p2, %r1, 16;
    @%p2 shfl.sync.{mode}.b32 %r6, %r3, %r4, %r5, 0xFFFF; st.global.u32 [%rd3], %r6;"""
    found = run(body, given, np.zeros((WARPS, 32, 2), "u4"), blocks=WARPS)[..., 0]
    for values, warp in zip(found.tolist(), given.tolist(), strict=True):
        sources = [source_of(mode, lane, b, c)[0] for lane, (_, b, c) in enumerate(warp[:16])]
        assert values == [warp[source][0] for source in sources] + [77] * 16
