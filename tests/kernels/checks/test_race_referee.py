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
    known: dict[int, int]  # for each thread, the last phase whose accesses come before this one
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
    """The PTX of a program. In each phase, the threads make their accesses one after the other."""
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


# ---- whole warps ----
#
# Lanes access neighbouring items, so that the check looks at lines and not at words.

SIZES = {1: "u32", 2: "v2.u32", 4: "v4.u32"}


def drawn_rows(random):
    """For each phase: what each warp does (mode, first word, words of a lane), and the barrier."""
    return [
        (
            {
                warp: [
                    (random.choice(("read", "write")), 4 * random.randrange(0, 20), size)
                    for size in random.choices(list(SIZES), k=random.randint(0, 2))
                ]
                for warp in (0, 1)
            },
            random.choice((BLOCK, "bar.warp.sync -1;", None)),
        )
        for _ in range(random.randint(2, 4))
    ]


def racy_words_of_rows(phases):
    since = []  # the accesses since the last barrier of the block: thread, warp's phase, mode, word
    racy = set()
    joined = [0, 0]
    for accesses, barrier in phases:
        for warp, rows in accesses.items():
            for mode, first, size in rows:
                for lane, item in itertools.product(range(32), range(size)):
                    word = first + lane * size + item
                    thread = 32 * warp + lane
                    racy |= {
                        word
                        for other, met, earlier, place in since
                        if place == word
                        and other != thread
                        and "write" in (mode, earlier)
                        and not (other // 32 == warp and met < joined[warp])
                    }
                    since.append((thread, joined[warp], mode, word))
        if barrier == BLOCK:
            since.clear()
        elif barrier:
            joined = [count + 1 for count in joined]
    return racy


def text_of_rows(phases):
    lines = []
    for number, (accesses, barrier) in enumerate(phases):
        for warp, rows in accesses.items():
            lines.append(f"shr.u32 %r5, %r1, 5; setp.ne.u32 %p1, %r5, {warp};")
            lines.append(f"@%p1 bra over{number}_{warp}; and.b32 %r6, %r1, 31;")
            for mode, first, size in rows:
                values = f"{{{', '.join(f'%r{20 + i}' for i in range(size))}}}"
                values = values if size > 1 else "%r20"
                lines.append(f"mad.lo.u32 %r7, %r6, {4 * size}, %r9;")
                place = f"[%r7+{4 * first}]"
                lines.append(
                    f"ld.shared.{SIZES[size]} {values}, {place};"
                    if mode == "read"
                    else f"st.shared.{SIZES[size]} {place}, {values};"
                )
            lines.append(f"over{number}_{warp}:")
        lines.append(barrier or "")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(40))
def test_random_rows(cuda_device, seed):
    chosen = random.Random(seed)
    phases = [
        ({w: [(m, f // s * s, s) for m, f, s in rows] for w, rows in accesses.items()}, barrier)
        for accesses, barrier in drawn_rows(chosen)
    ]
    racy = racy_words_of_rows(phases)
    found = run(text_of_rows(phases), checks="race")
    places = {word for hazard in found for word in range(hazard.start // 4, hazard.stop // 4)}
    assert bool(found) == bool(racy), text_of_rows(phases)
    assert not found or places & racy
