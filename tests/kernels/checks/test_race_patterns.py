"""checks=race on random patterns of addresses, which the check looks at in different ways."""

import collections
import itertools
import random
from typing import NamedTuple

import pytest

from .programs import run

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}
BLOCK, WARP = "bar.sync 0;", "bar.warp.sync -1;"
AREA = 512  # bytes, which all accesses are in


class Access(NamedTuple):
    """Lanes whose index has `wanted` in the bits of `guard` access memory at
    `first + (lane & low) * near + (lane >> 4) * far`, modulo AREA."""

    warp: int
    writes: bool
    size: int
    first: int
    low: int
    near: int
    far: int
    guard: int
    wanted: int

    def bytes_of(self, lane):
        if lane & self.guard != self.wanted:
            return range(0)
        begin = (self.first + (lane & self.low) * self.near + (lane >> 4) * self.far) % AREA
        return range(begin, begin + self.size)

    def text(self, name):
        values = f"{{{', '.join(f'%r{20 + i}' for i in range(self.size // 4))}}}"
        values = values if self.size > 4 else "%r20"
        move = (
            f"st.shared.{TYPES[self.size]} [%r7], {values};"
            if self.writes
            else f"ld.shared.{TYPES[self.size]} {values}, [%r7];"
        )
        return f"""
            shr.u32 %r5, %r1, 5; setp.ne.u32 %p1, %r5, {self.warp}; @%p1 bra over{name};
            and.b32 %r6, %r1, {self.guard}; setp.ne.u32 %p1, %r6, {self.wanted};
            @%p1 bra over{name};
            and.b32 %r6, %r1, {self.low}; mad.lo.u32 %r7, %r6, {self.near}, {self.first};
            and.b32 %r6, %r1, 31; shr.u32 %r6, %r6, 4; mad.lo.u32 %r7, %r6, {self.far}, %r7;
            and.b32 %r7, %r7, {AREA - 1}; add.u32 %r7, %r7, %r9;
            {move}
            over{name}:
        """


def drawn(random):
    """Phases: their accesses, and the barrier at their ends. About half of the programs race."""
    phases = []
    for _ in range(random.randint(1, 4)):
        accesses = []
        for _ in range(random.randint(1, 4)):
            size = random.choice(list(TYPES))
            guard = random.choice((0, 0, 0, 1, 16, 24, 31))
            accesses.append(
                Access(
                    warp=random.randrange(2),
                    writes=random.random() < 0.2,
                    size=size,
                    first=size * random.randrange(AREA // size),
                    low=random.choice((0, 15, 31, 31, 7)),
                    near=size * random.choice((0, 1, 1, 1, 2, 3, 40)),
                    far=size * random.choice((0, 0, 1, 16, 33)),
                    guard=guard,
                    wanted=guard & random.randrange(32),
                )
            )
        phases.append((accesses, random.choice((BLOCK, BLOCK, WARP, None))))
    return phases


def racy_bytes(phases):
    """The bytes with two accesses that nothing orders, at least one of them a write."""
    # For each byte, the accesses since the last barrier of the block. An access is the thread, how
    # often its warp had met by then, and whether it writes.
    since = collections.defaultdict(set)
    racy = set()
    met = 0
    for accesses, barrier in phases:
        for access, lane in itertools.product(accesses, range(32)):
            thread = 32 * access.warp + lane
            for byte in access.bytes_of(lane):
                racy |= {
                    byte
                    for other, phase, writes in since[byte]
                    if other != thread
                    and (writes or access.writes)
                    and not (other // 32 == access.warp and phase < met)
                }
                since[byte].add((thread, met, access.writes))
        if barrier == BLOCK:
            since.clear()
        elif barrier:
            met += 1
    return racy


def text(phases):
    lines = []
    for number, (accesses, barrier) in enumerate(phases):
        lines += [access.text(f"{number}_{i}") for i, access in enumerate(accesses)]
        lines.append(barrier or "")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(100))
def test_random_patterns(cuda_device, seed):
    phases = drawn(random.Random(seed))
    racy = racy_bytes(phases)
    found = run(text(phases), checks="race")
    assert bool(found) == bool(racy), text(phases)
    assert all(racy & set(range(hazard.start, hazard.stop)) for hazard in found), text(phases)


@pytest.mark.parametrize("seed", range(10))
def test_many_reads_and_a_write(cuda_device, seed):
    """More reads than a line has room for."""
    chosen = random.Random(seed)
    reads = [access._replace(writes=False) for _ in range(60) for access in drawn(chosen)[0][0]]
    writes = [access._replace(writes=True) for access in drawn(chosen)[0][0][:1]]
    for barrier in (BLOCK, None):
        phases = [(reads, barrier), (writes, None)]
        racy = racy_bytes(phases)
        found = run(text(phases), checks="race")
        assert bool(found) == bool(racy)
        assert all(racy & set(range(hazard.start, hazard.stop)) for hazard in found)


@pytest.mark.parametrize("communicates", ["", "ld.volatile.global.u32 %r5, [word];"])
@pytest.mark.parametrize("writer", range(8, 16))
def test_reads_of_other_words_hide_nothing(cuda_device, writer, communicates):
    """Half of the blocks read some words of a line, the others other ones, which a block writes."""
    found = run(
        f"""{communicates}
        shr.u32 %r5, %r2, 3; mad.lo.u32 %r5, %r5, 32, 16; add.u32 %r5, %r5, %r1;
        mul.wide.u32 %rd5, %r5, 4; add.u64 %rd5, %rd1, %rd5;
        setp.eq.u32 %p1, %r2, {writer}; @%p1 bra writes;
        ld.global.u32 %r6, [%rd5]; bra done;
        writes: setp.ge.u32 %p1, %r1, 16; @%p1 bra done; st.global.u32 [%rd5], %r1;
        """,
        blocks=16,
        threads=32,
    )
    words = {hazard.start // 4 for hazard in found}
    assert words
    assert words <= set(range(48, 64))
