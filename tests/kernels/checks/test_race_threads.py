"""checks=race finds the same in independent blocks, however many threads run them."""

import collections
import itertools
import random
from typing import NamedTuple

import pytest

from cudadrv import testing

from .programs import run

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

BLOCKS, THREADS = 40, 64
AREA = 8192  # bytes, which all accesses are in
TYPES = {1: "u8", 4: "u32", 16: "v4.u32"}
# A launch uses several threads only if its blocks have enough work.
WORK = """
    mov.u32 %r30, 0;
    again: add.u32 %r30, %r30, 1; setp.lt.u32 %p7, %r30, 100; @%p7 bra again;
"""


class Access(NamedTuple):
    """Threads of the blocks whose number has `wanted` in the bits of `guard`."""

    mode: str  # "ld", "st" or "red"
    size: int
    first: int
    of_block: int  # bytes from block to block
    of_thread: int
    guard: int
    wanted: int
    value: str  # the register that is stored

    def bytes_of(self, block, thread):
        if block & self.guard != self.wanted:
            return range(0)
        begin = (self.first + block * self.of_block + thread * self.of_thread) % AREA
        return range(begin, begin + self.size)

    def stored(self, block, thread):
        return {"%r1": thread, "%r2": block, "%r10": 7}[self.value]

    def text(self, name):
        values = ", ".join([self.value] * max(1, self.size // 4))
        values = f"{{{values}}}" if self.size > 4 else self.value
        loaded = "{%r20, %r21, %r22, %r23}" if self.size > 4 else "%r20"
        return f"""
            and.b32 %r5, %r2, {self.guard}; setp.ne.u32 %p1, %r5, {self.wanted};
            @%p1 bra over{name};
            mad.lo.u32 %r5, %r2, {self.of_block}, {self.first};
            mad.lo.u32 %r5, %r1, {self.of_thread}, %r5; and.b32 %r5, %r5, {AREA - 1};
            cvt.u64.u32 %rd5, %r5; add.u64 %rd5, %rd1, %rd5;
            {
            {
                "ld": f"ld.global.{TYPES[self.size]} {loaded}, [%rd5];",
                "st": f"st.global.{TYPES[self.size]} [%rd5], {values};",
                "red": "red.global.add.u32 [%rd5], 1;",
            }[self.mode]
        }
            over{name}:
        """


def drawn(random):
    phases = []
    for _ in range(random.randint(1, 3)):
        accesses = []
        for _ in range(random.randint(1, 3)):
            mode = random.choice(("ld", "ld", "ld", "st", "red"))
            size = 4 if mode == "red" else random.choice(list(TYPES))
            guard = random.choice((0, 0, 1, 4, 33))
            accesses.append(
                Access(
                    mode,
                    size,
                    first=size * random.choice((0, 1, 64, 100)),
                    of_block=size * random.choice((0, 64, 64, 64, 65, 128)),
                    of_thread=size * random.choice((0, 1, 1, 1, 2)),
                    guard=guard,
                    wanted=guard & random.randrange(64),
                    value=random.choice(("%r1", "%r2", "%r10")),
                )
            )
        phases.append(accesses)
    return phases


def text(phases):
    lines = [WORK, "mov.u32 %r10, 7;"]
    for number, accesses in enumerate(phases):
        lines += [access.text(f"{number}_{i}") for i, access in enumerate(accesses)]
        lines.append("bar.sync 0;")
    return "\n".join(lines)


def races(phases):
    """Whether there are races, and whether some are between writes of different bytes or with
    other accesses: those are not benign."""
    at = collections.defaultdict(set)
    for phase, accesses in enumerate(phases):
        for access, block, thread in itertools.product(accesses, range(BLOCKS), range(THREADS)):
            for byte in access.bytes_of(block, thread):
                value = access.stored(block, thread) if access.mode == "st" else None
                if value is not None and access.size == 1:
                    value &= 255
                at[byte].add((block, thread, phase, access.mode, value))
    found = serious = False
    for same_byte in at.values():
        if all(mode in ("ld",) for _, _, _, mode, _ in same_byte):
            continue
        few = sorted(same_byte, key=lambda each: each[:3] + (each[3], each[4] or 0))
        for one, other in itertools.combinations(few[:80], 2):
            in_order = one[0] == other[0] and (one[1] == other[1] or one[2] != other[2])
            modes = {one[3], other[3]}
            if in_order or modes in ({"ld"}, {"red"}):
                continue
            found = True
            serious |= modes != {"st"} or one[4] != other[4]
        if serious:
            break
    return found, serious


def is_write_in_a_block(hazard):
    """Return whether both accesses of a race are writes by one block. Other blocks may write there,
    too, so whether such a race is benign depends on them.
    """
    first, second = hazard.first, hazard.second
    return first.mode == second.mode == "write" and first.block == second.block


def told(hazard):
    accesses = [
        (each.mode, each.ptx_line, each.block, each.thread)
        for each in (hazard.first, hazard.second)
    ]
    return hazard.memory, hazard.start, hazard.stop, hazard.benign, hazard.count, *accesses


def places(hazard):
    return sorted((each.mode, each.ptx_line) for each in (hazard.first, hazard.second))


@pytest.mark.parametrize("seed", range(40))
def test_random_kernels(cuda_device, seed):
    phases = drawn(random.Random(seed))
    body = text(phases)
    found = {}
    for threads in (1, 4, 3):
        with testing.configured(f"threads={threads}"):
            found[threads] = run(body, blocks=BLOCKS, threads=THREADS)
    there, serious = races(phases)
    assert bool(found[1]) == there, body
    assert not serious or any(not hazard.benign for hazard in found[1]), body
    sure = not any(map(is_write_in_a_block, itertools.chain(*found.values())))
    what = told if sure else places
    alone, *others = (sorted(map(what, hazards), key=str) for hazards in found.values())
    for other in others:
        assert other == alone, body


def test_a_flag_that_all_blocks_set_is_benign(cuda_device):
    body = f"{WORK} mov.u32 %r10, 1; st.global.u32 [%rd1], %r10;"
    for threads in (1, 4):
        with testing.configured(f"threads={threads}"):
            (hazard,) = run(body, blocks=BLOCKS)
        assert hazard.benign
