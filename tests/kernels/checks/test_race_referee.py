"""checks=race on random programs, compared with an order that is computed from the barriers."""

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

THREADS = (0, 1, 32, 33)  # two lanes of each of two warps
WORDS = 4
BLOCK, WARP = "bar.sync 0;", "bar.warp.sync 3;"
ONE_WAY = "bar.sync {0}, 64; bra join{0}; second{0}: bar.arrive {0}, 64; join{0}:"
ACCESSES = {
    "read": "ld.shared.u32 %r5, [%r9+{}];",
    "write": "st.shared.u32 [%r9+{}], %r1;",
    "atomic": "red.shared.add.u32 [%r9+{}], 1;",
}


class Access(NamedTuple):
    thread: int
    phase: int
    known: dict[int, int]  # for each thread, up to which phase its accesses come before
    mode: str
    word: int


def drawn(random):
    """A program: for each phase, what each thread does, and the barrier at its end."""
    phases = []
    for _ in range(random.randint(2, 5)):
        accesses = {
            thread: [
                (random.choice(list(ACCESSES)), random.randrange(WORDS))
                for _ in range(random.randint(0, 2))
            ]
            for thread in THREADS
        }
        phases.append((accesses, random.choice((BLOCK, WARP, WARP, ONE_WAY, None))))
    return phases


def racy_words(phases):
    """The words with two accesses that nothing orders."""
    clock = {thread: dict.fromkeys(THREADS, 0) for thread in THREADS}
    done = []
    for phase, (accesses, barrier) in enumerate(phases, 1):
        for thread in THREADS:
            known = dict(clock[thread])
            done += [Access(thread, phase, known, mode, word) for mode, word in accesses[thread]]
        before = {thread: {**clock[thread], thread: phase} for thread in THREADS}
        for thread, other in itertools.product(THREADS, THREADS):
            meets = {
                BLOCK: True,
                WARP: thread // 32 == other // 32,
                ONE_WAY: thread < 32,  # the second warp does not wait
                None: False,
            }[barrier]
            if meets:
                for each in THREADS:
                    clock[thread][each] = max(clock[thread][each], before[other][each])
    return {
        one.word
        for one, other in itertools.combinations(done, 2)
        if one.thread != other.thread
        and one.word == other.word
        and {one.mode, other.mode} not in ({"read"}, {"atomic"})
        and one.known[other.thread] < other.phase
        and other.known[one.thread] < one.phase
    }


def text(phases):
    """Each thread has a part of each phase. The barriers are for all lanes of a warp."""
    lines = []
    for number, (accesses, barrier) in enumerate(phases, 1):
        for thread in THREADS:
            lines.append(f"setp.ne.u32 %p1, %r1, {thread}; @%p1 bra over{number}_{thread};")
            lines += [ACCESSES[mode].format(4 * word) for mode, word in accesses[thread]]
            lines.append(f"over{number}_{thread}:")
        if barrier == WARP:
            lines.append(f"and.b32 %r6, %r1, 31; setp.gt.u32 %p2, %r6, 1; @%p2 bra beside{number};")
            lines.append(f"{WARP} beside{number}:")
        elif barrier == ONE_WAY:
            lines.append(f"setp.ge.u32 %p2, %r1, 32; @%p2 bra second{number};")
            lines.append(ONE_WAY.format(number))
        elif barrier:
            lines.append(barrier)
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(cuda_device, seed):
    phases = drawn(random.Random(seed))
    found = {hazard.start // 4 for hazard in run(text(phases))}
    assert found == racy_words(phases), text(phases)
