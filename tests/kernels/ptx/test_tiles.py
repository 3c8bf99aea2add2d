"""Tiles: parts of a warp that call the same instruction, each with its own mask."""

import numpy as np
import pytest

from .running import WORD, run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

# %r4 is the mask of the thread's tile, %r5 the thread's rank in the tile, %r6 the tile's number.
MASK = """mov.u32 %r2, {size}; sub.u32 %r3, %r2, 1; and.b32 %r5, %r1, %r3; sub.u32 %r3, %r1, %r5;
div.u32 %r6, %r1, %r2; mov.u32 %r4, 1; shl.b32 %r4, %r4, %r2; sub.u32 %r4, %r4, 1;
shl.b32 %r4, %r4, %r3;"""
# The lanes say whether their rank, or their tile's number, is 1.
SAYS = "setp.eq.u32 %p1, %r5, 1; setp.eq.u32 %p2, %r6, 1; mov.u32 %r8, 0;"


def tiles(size):
    return [range(first, first + size) for first in range(0, 32, size)]


def mask_of(tile):
    return sum(1 << lane for lane in tile)


# The instructions, and the result for all lanes of a tile, or a list with the result for each lane.
EXCHANGES = {
    "ballot": (
        f"{SAYS} vote.sync.ballot.b32 %r8, %p1, %r4;",
        lambda number, tile: 1 << tile[1],
    ),
    "any": (
        f"{SAYS} vote.sync.any.pred %p3, %p2, %r4; selp.u32 %r8, 1, 0, %p3;",
        lambda number, tile: number == 1,
    ),
    "all": (
        f"{SAYS} vote.sync.all.pred %p3, %p2, %r4; selp.u32 %r8, 1, 0, %p3;",
        lambda number, tile: number == 1,
    ),
    "match": (
        "match.any.sync.b32 %r8, 7, %r4;",
        lambda number, tile: mask_of(tile),
    ),
    "match all": (
        "match.all.sync.b32 %r8|%p3, 7, %r4;",
        lambda number, tile: mask_of(tile),
    ),
    "sum": (
        "redux.sync.add.u32 %r8, %r1, %r4;",
        lambda number, tile: sum(tile),
    ),
    "shuffle": (
        "shfl.sync.idx.b32 %r8, %r1, 1, {segment}, %r4;",
        lambda number, tile: tile[1],
    ),
    "rotation": (
        "shfl.sync.bfly.b32 %r8, %r1, 1, {segment}, %r4;",
        lambda number, tile: [lane ^ 1 for lane in tile],
    ),
}


def expected(exchange, size):
    of_tiles = [exchange(number, tile) for number, tile in enumerate(tiles(size))]
    return np.ravel([np.broadcast_to(each, size) for each in of_tiles]).astype("u4").tolist()


@pytest.mark.parametrize("size", [2, 4, 8, 16])
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_lanes_exchange_values_with_their_own_tile(exchange, size):
    text, wanted = EXCHANGES[exchange]
    segment = (32 - size) << 8 | 31
    body = f"""{WORD} {MASK.format(size=size)} {text.format(segment=segment)}
    st.global.u32 [%rd3], %r8;"""
    found = run(body, np.zeros(1), np.zeros(32, "u4"), version="8.0")
    assert found.tolist() == expected(wanted, size)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_a_tile_waits_for_its_lanes_that_come_later(size):
    """In the upper half, lanes of odd rank come later than the others, which read their words."""
    body = f"""{WORD} .shared .align 4 .b8 tile[128]; {MASK.format(size=size)}
    mov.u32 %r9, tile; mad.lo.u32 %r10, %r1, 4, %r9; st.shared.u32 [%r10], %r1;
    and.b32 %r3, %r1, 17; setp.eq.u32 %p1, %r3, 17; @%p1 bra later;
    come: bar.warp.sync %r4; xor.b32 %r10, %r10, 4; ld.shared.u32 %r8, [%r10];
    st.global.u32 [%rd3], %r8; bra done;
    later: add.u32 %r11, %r1, 100; st.shared.u32 [%r10], %r11; bra come; done:"""
    found = run(body, np.zeros(1), np.zeros(32, "u4"))
    partners = np.arange(32) ^ 1
    assert found.tolist() == np.where(partners & 17 == 17, partners + 100, partners).tolist()


def test_two_tiles_and_lanes_that_have_ended():
    """The last four lanes end; masks may name them."""
    body = f"""{WORD} {MASK.format(size=16)} setp.ge.u32 %p1, %r1, 28; @%p1 bra done;
    redux.sync.add.u32 %r8, %r1, %r4; st.global.u32 [%rd3], %r8; done:"""
    found = run(body, np.zeros(1), np.zeros(32, "u4"))
    assert found.tolist() == [sum(range(16))] * 16 + [sum(range(16, 28))] * 12 + [0] * 4
