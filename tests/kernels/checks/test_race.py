"""checks=race: races inside kernels."""

import re

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

from . import programs
from .programs import modes, run

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

STORE, LOAD = "st.shared.u32 [%r3], %r1;", "ld.shared.u32 %r5, [%r4];"
EARLY = "setp.ge.u32 %p1, %r1, 32; @%p1 bra second;"  # the second warp jumps
LANES = "setp.ge.u32 %p1, %r1, 2; @%p1 bra done;"  # two lanes go on

COUNT, GUARDED = "red.shared.add.u32 [%r9], 1;", "@%p1 ld.shared.u32 %r5, [%r9];"
RED = ["atomic read"]

# The body, and the races.
BLOCK = {
    "a barrier": (f"{STORE} bar.sync 0; {LOAD}", []),
    "no barrier": (f"{STORE} {LOAD}", ["read write"]),
    "the read before the write": (f"{LOAD} {STORE}", ["read write"]),
    "a barrier of 64 threads": (f"{STORE} barrier.sync 3, 64; {LOAD}", []),
    "a barrier that reduces": (f"{STORE} bar.red.popc.u32 %r6, 0, %p1; {LOAD}", []),
    "two barriers, the second read": (
        f"{STORE} bar.sync 0; {LOAD} bar.sync 0; {STORE} {LOAD}",
        ["read write"],
    ),
    "one warp waits for the other": (
        f"{EARLY} st.shared.u32 [%r3], 5; bar.arrive 1, 64; bra done;"
        "second: bar.sync 1, 64; sub.u32 %r4, %r3, 128; ld.shared.u32 %r5, [%r4];",
        [],
    ),
    "one warp arrives too early": (
        f"{EARLY} bar.arrive 1, 64; st.shared.u32 [%r3], 5; bra done;"
        "second: bar.sync 1, 64; sub.u32 %r4, %r3, 128; ld.shared.u32 %r5, [%r4];",
        ["read write"],
    ),
    "the warp that arrives has not waited": (
        f"{EARLY} bar.arrive 1, 64; sub.u32 %r4, %r4, 0; ld.shared.u32 %r5, [%r4+128]; bra done;"
        "second: st.shared.u32 [%r3], 5; bar.sync 1, 64;",
        ["read write"],
    ),
    "neighbours in a word": (
        "add.u32 %r5, %r9, %r1; st.shared.u8 [%r5], %r1; ld.shared.u8 %r6, [%r5];",
        [],
    ),
    "a byte of a word that another thread reads": (
        "add.u32 %r5, %r9, %r1; st.shared.u8 [%r5], %r1; and.b32 %r5, %r5, -4;"
        "ld.shared.u16 %r6, [%r5+2];",
        ["read write"],
    ),
    "vectors": (
        "shl.b32 %r5, %r1, 3; add.u32 %r5, %r5, %r9; st.shared.v2.u32 [%r5], {%r1, %r1};"
        "ld.shared.u32 %r6, [%r5+4]; ld.shared.u32 %r6, [%r5+8];",
        ["read write"],
    ),
    "all write the same": ("st.shared.u32 [%r9], 7;", ["write write same"]),
    "all write what is there": (
        "setp.ne.u32 %p1, %r1, 0; @!%p1 st.shared.u32 [%r9], 7; bar.sync 0;st.shared.u32 [%r9], 7;",
        ["write write same"],
    ),
    "all write the same, by generic addresses": (
        "cvt.u64.u32 %rd5, %r9; cvta.shared.u64 %rd5, %rd5; st.u32 [%rd5], 7;",
        ["write write same"],
    ),
    "a write of what is there, behind a read": (
        "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [%r9], 7; bar.sync 0;"
        "@%p1 ld.shared.u32 %r5, [%r9]; setp.eq.u32 %p2, %r1, 32; @%p2 st.shared.u32 [%r9], 7;",
        ["read write"],
    ),
    "all write something": ("st.shared.u32 [%r9], %r1;", ["write write"]),
    "atomics": ("red.shared.add.u32 [%r9], 1; atom.shared.max.u32 %r5, [%r9], %r1;", []),
    "an atomic and a read": (
        "red.shared.add.u32 [%r9], 1; ld.shared.u32 %r5, [%r9];",
        ["atomic read"],
    ),
    "an atomic, a barrier and a read": (
        "red.shared.add.u32 [%r9], 1; bar.sync 0; ld.shared.u32 %r5, [%r9];",
        [],
    ),
    "an atomic behind the read of another thread, at the place of an earlier one": (
        """st.shared.u32 [%r9+64], %r1; mov.u32 %r10, 0; loop: setp.eq.u32 %p1, %r1, %r10;
        @%p1 red.shared.add.u32 [%r9], 1; setp.eq.and.u32 %p2, %r10, 0, %p1;
        @%p2 ld.shared.u32 %r5, [%r9]; add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, 2;
        @%p3 bra loop;""",
        ["atomic read", "write write"],
    ),
    "volatile accesses": (
        "st.volatile.shared.u32 [%r9], %r1; ld.volatile.shared.u32 %r5, [%r9];",
        [],
    ),
    "strong accesses of other sizes": (
        "st.volatile.shared.u32 [%r9], %r1; ld.volatile.shared.u16 %r5, [%r9];",
        ["read write"],
    ),
    "atomics of other sizes": (
        "red.shared.add.u32 [%r9], 1; red.shared.add.u64 [%r9], %rd1;",
        ["atomic atomic"],
    ),
    "atomics over a write, and atomics of others": (
        f"""{EARLY} st.shared.u32 [%r3], 1; red.shared.add.u32 [%r3], 1; bra done;
        second: sub.u32 %r4, %r3, 128; red.shared.add.u32 [%r4], 1;""",
        ["atomic write"],
    ),
    "a volatile write of what is there": (
        "st.shared.u32 [%r9], 7; st.volatile.shared.u32 [%r9], 7;",
        ["write write"],
    ),
    "a generic address": (
        f"{STORE} cvta.shared.u64 %rd5, %rd5; cvt.u64.u32 %rd5, %r4; cvta.shared.u64 %rd5, %rd5;"
        "ld.u32 %r5, [%rd5];",
        ["read write"],
    ),
    "lanes that have ended": (
        f"{EARLY} {STORE} bra both; second: bra done; both: bar.sync 0;"
        "setp.eq.u32 %p2, %r1, 31; @%p2 bra done;" + LOAD,
        [],
    ),
    "a function": (
        f"{STORE} call use, (%r4);",
        ["read write"],
    ),
    "what a warp did before it ended": (
        f"{EARLY} bar.sync 0; ld.shared.u32 %r5, [%r3+128]; bra done; second: {STORE}",
        ["read write"],
    ),
    "a counter that its first thread reads": (f"{COUNT} setp.eq.u32 %p1, %r1, 0; {GUARDED}", RED),
    "a counter that its last thread reads": (f"{COUNT} setp.eq.u32 %p1, %r1, 63; {GUARDED}", RED),
    "a counter that whoever comes last reads": (
        """atom.shared.add.u32 %r5, [%r9], 1; sub.u32 %r6, %r5, 0xcdcdcdcd;
        setp.eq.u32 %p1, %r6, 63; @%p1 ld.shared.u32 %r6, [%r9];""",
        [],
    ),
}
WARP = {
    "no order": (f"{STORE} {LOAD}", ["read write"]),
    "__syncwarp": (f"{STORE} bar.warp.sync -1; {LOAD}", []),
    "a mask of both": (f"{LANES} {STORE} bar.warp.sync 3; {LOAD}", []),
    "masks of one each": (
        f"{LANES} {STORE} shl.b32 %r5, 1, %r1; bar.warp.sync %r5; {LOAD}",
        ["read write"],
    ),
    "a shuffle orders nothing": (
        f"{STORE} shfl.sync.bfly.b32 %r6, %r1, 1, 31, -1; {LOAD}",
        ["read write"],
    ),
    "a vote orders nothing": (
        f"{STORE} vote.sync.any.pred %p2, %p2, -1; {LOAD}",
        ["read write"],
    ),
    "lanes that meet at different places": (
        f"""{LANES} setp.eq.u32 %p2, %r1, 0; @%p2 bra one; {STORE} bar.warp.sync 3; bra done;
        one: bar.warp.sync 3; {LOAD}""",
        [],
    ),
    "behind the meeting": (
        f"""{LANES} setp.eq.u32 %p2, %r1, 0; @%p2 bra one; bar.warp.sync 3; {STORE} bra done;
        one: bar.warp.sync 3; {LOAD}""",
        ["read write"],
    ),
    "behind the meeting, while others meet": (
        """setp.gt.u32 %p1, %r1, 2; @%p1 bra done; setp.eq.u32 %p2, %r1, 1; @%p2 bra one;
        setp.eq.u32 %p2, %r1, 2; @%p2 bra two;
        bar.warp.sync 3; st.shared.u32 [%r9], 5; bar.warp.sync 5; bra done;
        two: bar.warp.sync 5; bra done; one: bar.warp.sync 3; ld.shared.u32 %r5, [%r9];""",
        ["read write"],
    ),
    "what lanes did before they ended": (
        f"""setp.ge.u32 %p1, %r1, 16; @%p1 bra half; bar.warp.sync -1;
        ld.shared.u32 %r5, [%r3+64]; bra done; half: {STORE}""",
        ["read write"],
    ),
    "an atomic that acquires is itself behind what it acquires": (
        """setp.ne.u32 %p1, %r1, 0; @%p1 bra other; st.shared.u32 [%r9], 5;
        st.release.cta.shared.u32 [%r9], 1; bra done; other: setp.ne.u32 %p1, %r1, 1;
        @%p1 bra done; atom.acquire.cta.shared.exch.b32 %r5, [%r9], 2;
        st.shared.u32 [%r3], %r5;""",
        [],
    ),
    "a mask and then all": (
        f"""setp.lt.u32 %p2, %r1, 2; @%p2 bra pair; bra all; pair: {STORE} bar.warp.sync 3;
        all: bar.warp.sync -1; {LOAD}""",
        [],
    ),
}
TILE = """and.b32 %r5, %r1, 16; mov.u32 %r6, 0xFFFF; shl.b32 %r6, %r6, %r5;
bar.warp.sync %r6; xor.b32 %r5, %r3, {other}; ld.shared.u32 %r5, [%r5];"""
WARP |= {
    "two tiles": (STORE + TILE.format(other=4), []),
    "the other tile": (STORE + TILE.format(other=64), ["read write"]),
    "two tiles, one of which comes apart": (
        f"""{STORE} setp.ge.u32 %p1, %r1, 16; @%p1 bra later; come: {TILE.format(other=4)} bra done;
        later: and.b32 %r5, %r1, 1; setp.eq.u32 %p2, %r5, 1; @%p2 bra come; st.shared.u32 [%r3], 7;
        bra come;""",
        [],
    ),
}
FUNCTION = ".func use(.reg .u32 a) { .reg .u32 x; ld.shared.u32 x, [a]; ret; }"


@pytest.mark.parametrize("case", BLOCK)
def test_in_a_block(cuda_device, case):
    body, expected = BLOCK[case]
    assert modes(run(body, before=FUNCTION)) == expected


@pytest.mark.parametrize("case", WARP)
def test_in_a_warp(cuda_device, case):
    body, expected = WARP[case]
    found = run(body, threads=32)
    assert modes(found) == expected
    assert all("__syncwarp()" in hazard.text for hazard in found)


# Block 0 writes and sets a flag. Block 1 waits for the flag and reads. {0} to {2} are the
# instructions that set the flag, read the flag, and follow the wait.
FLAG = """setp.ne.u32 %p1, %r1, 0; @%p1 bra done; setp.eq.u32 %p2, %r2, 1; @%p2 bra wait;
    st.global.u32 [%rd1], 7; {0} bra done;
    wait: {1} setp.eq.u32 %p3, %r5, 0; @%p3 bra wait; {2} ld.global.u32 %r6, [%rd1];"""
SET, GET = "st.volatile.global.u32 [word], 1;", "ld.volatile.global.u32 %r5, [word];"
FENCE = "fence.acq_rel.gpu;"
FLAGS = {
    "fences": ((f"{FENCE} {SET}", GET, FENCE), []),
    "membar": ((f"membar.gl; {SET}", GET, "membar.gl;"), []),
    "two fences that no flag is between": (
        ("fence.sc.gpu;", "mov.u32 %r5, 1;", "fence.sc.gpu;"),
        ["read write"],
    ),
    "a fence of the system": ((f"membar.sys; {SET}", GET, "fence.sc.sys;"), []),
    "no fence before": ((SET, GET, FENCE), ["read write"]),
    "no fence behind": ((f"{FENCE} {SET}", GET, ""), ["read write"]),
    "a fence in the block": ((f"fence.acq_rel.cta; {SET}", GET, FENCE), ["read write"]),
    "a fence behind in the block": ((f"{FENCE} {SET}", GET, "membar.cta;"), ["read write"]),
    "a fence that comes too late": ((f"{SET} {FENCE}", GET, FENCE), ["read write"]),
    "release and acquire": (
        ("st.release.gpu.global.u32 [word], 1;", "ld.acquire.gpu.global.u32 %r5, [word];", ""),
        [],
    ),
    "release, and a fence": (
        ("st.release.gpu.global.u32 [word], 1;", GET, FENCE),
        [],
    ),
    "atomics that release and acquire": (
        (
            "red.release.gpu.global.add.u32 [word], 1;",
            "atom.acquire.gpu.global.add.u32 %r5, [word], 0;",
            "",
        ),
        [],
    ),
    "a release, and then another store": (
        (
            "st.release.gpu.global.u32 [word], 1; st.relaxed.gpu.global.u32 [word], 2;",
            "ld.relaxed.gpu.global.u32 %r5, [word];",
            FENCE,
        ),
        [],
    ),
    "a load, and then an acquire": (
        (
            "st.release.gpu.global.u32 [word], 1;",
            "ld.relaxed.gpu.global.u32 %r5, [word];",
            "ld.acquire.gpu.global.u32 %r7, [word];",
        ),
        [],
    ),
    "a load, another value, and then an acquire": (
        (
            "st.release.gpu.global.u32 [word], 1;",
            "ld.relaxed.gpu.global.u32 %r5, [word];",
            "st.relaxed.gpu.global.u32 [word], 2; ld.acquire.gpu.global.u32 %r7, [word];",
        ),
        [],
    ),
    "an acquire of another word": (
        (
            "st.release.gpu.global.u32 [word], 1;",
            "ld.relaxed.gpu.global.u32 %r5, [word];",
            "ld.acquire.gpu.global.u32 %r7, [word+4];",
        ),
        ["read write"],
    ),
    "an acquire in the block": (
        ("st.release.gpu.global.u32 [word], 1;", "ld.acquire.cta.global.u32 %r5, [word];", ""),
        ["read write", "read write"],
    ),
    "an element of a vector": (
        (
            f"{FENCE} st.volatile.global.v2.u32 [word], {{1, 1}};",
            "ld.volatile.global.u32 %r5, [word+4];",
            FENCE,
        ),
        [],
    ),
    "another size": (
        ("st.release.gpu.global.u32 [word], 1;", "ld.acquire.gpu.global.u16 %r5, [word];", ""),
        ["read write", "read write"],
    ),
    "a weak read of the flag": ((f"{FENCE} {SET}", GET, f"{FENCE} ld.global.u32 %r7, [word];"), []),
    "a weak reset of the flag": ((f"{FENCE} {SET}", GET, f"{FENCE} st.global.u32 [word], 0;"), []),
    "fences of one kind": ((f"fence.release.gpu; {SET}", GET, "fence.acquire.gpu;"), []),
    "an acquire fence before": ((f"fence.acquire.gpu; {SET}", GET, FENCE), ["read write"]),
    "a release fence behind": ((f"{FENCE} {SET}", GET, "fence.release.gpu;"), ["read write"]),
    "a weak write over the flag": (
        (f"{FENCE} {SET} st.global.u32 [word], 1;", GET, FENCE),
        ["read write", "read write"],
    ),
    "a write over a part of the flag": (
        (
            f"{FENCE} st.volatile.global.u64 [word], 1; st.volatile.global.u32 [word+4], 0;",
            "ld.volatile.global.u64 %rd9, [word]; cvt.u32.u64 %r5, %rd9;",
            FENCE,
        ),
        ["read write", "read write"],
    ),
    "a release in the block, and then another store": (
        (
            "st.release.cta.global.u32 [word], 1; st.relaxed.gpu.global.u32 [word], 2;",
            "ld.acquire.gpu.global.u32 %r5, [word];",
            "",
        ),
        ["read write", "read write"],
    ),
    # The second word only makes the reader wait: no fence is before its write.
    "an atomic that sees a release": (
        (
            "red.release.gpu.global.add.u32 [word], 1; st.relaxed.gpu.global.u32 [word+8], 1;",
            "ld.relaxed.gpu.global.u32 %r5, [word+8];",
            f"atom.global.add.u32 %r7, [word], 1; setp.eq.u32 %p4, %r7, 9; {FENCE}",
        ),
        [],
    ),
    "an atomic whose result nobody uses": (
        (
            "red.release.gpu.global.add.u32 [word], 1; st.relaxed.gpu.global.u32 [word+8], 1;",
            "ld.relaxed.gpu.global.u32 %r5, [word+8];",
            f"red.global.add.u32 [word], 1; {FENCE}",
        ),
        ["read write"],
    ),
    "atomics that are relaxed": (
        ("red.global.add.u32 [word], 1;", "atom.global.add.u32 %r5, [word], 0;", ""),
        ["read write"],
    ),
}


@pytest.mark.parametrize("case", FLAGS)
def test_between_blocks_by_a_flag(cuda_device, case):
    (before, get, behind), expected = FLAGS[case]
    found = run(FLAG.format(before, get, behind), blocks=2, threads=32)
    assert modes(found) == expected


def test_a_red_of_two_state_spaces_learns_nothing(cuda_device):
    """The result of a `red` is nowhere, so a fence behind it acquires nothing."""
    body = f"""setp.gt.u32 %p1, %r1, 1; @%p1 bra done; setp.ne.u32 %p2, %r1, 0;
        setp.eq.u32 %p3, %r2, 1; @%p3 bra wait; @%p2 bra done; st.global.u32 [%rd1], 7;
        red.release.gpu.global.add.u32 [word], 1; st.relaxed.gpu.global.u32 [word+8], 1; bra done;
        wait: ld.relaxed.gpu.global.u32 %r5, [word+8]; setp.eq.u32 %p4, %r5, 0; @%p4 bra wait;
        mov.u64 %rd5, word; cvta.global.u64 %rd5, %rd5; cvt.u64.u32 %rd6, %r9;
        cvta.shared.u64 %rd6, %rd6; selp.b64 %rd5, %rd6, %rd5, %p2;
        {{update}} {FENCE} @!%p2 ld.global.u32 %r6, [%rd1];"""
    for update, expected in (
        ("red.relaxed.gpu.add.u32 [%rd5], 1;", ["read write"]),
        ("atom.relaxed.gpu.add.u32 %r7, [%rd5], 1; setp.eq.u32 %p5, %r7, 9;", []),
    ):
        assert modes(run(body.format(update=update), blocks=2, threads=32)) == expected


BEFORE, BEHIND = "before the write at flag.cu:2", "after the read at flag.cu:3"
ADVICE = {
    "no fence before": f"add __threadfence() {BEFORE} (",
    "no fence behind": f"add __threadfence() {BEHIND} (",
    "a fence in the block": f"add __threadfence() {BEFORE} (",
    "a fence behind in the block": f"add __threadfence() {BEHIND} (",
    "a fence that comes too late": f"add __threadfence() {BEFORE} (",
    "another size": "use atomics, or launch the two as two kernels",
    "a weak write over the flag": "use atomics, or launch the two as two kernels",
}


@pytest.mark.parametrize("case", ADVICE)
def test_advice_on_fences(cuda_device, case):
    """It names the accesses to the flag, and only the fence that is missing."""
    (before, get, behind), _ = FLAGS[case]
    parts = [f"\n.loc 1 {line} 0\n{text}" for line, text in ((2, before), (3, get), (4, behind))]
    found = run(FLAG.format(*parts), blocks=2, threads=32, before='.file 1 "flag.cu"')
    (text,) = (hazard.text for hazard in found if "of variable 'word'" not in hazard.text)
    assert ADVICE[case] in text
    assert text.count("add __threadfence()") == ("(" in ADVICE[case])
    assert not (BEFORE in text and BEHIND in text)


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        (
            "{get} {update} {put}",
            "before the atomic at lock.cu:3 and after the atomic at lock.cu:1",
        ),
        ("{get} {fence} {update} {put}", "before the atomic at lock.cu:3"),
        ("{get} {update} {fence} {put}", "after the atomic at lock.cu:1"),
    ],
)
def test_advice_on_a_lock(cuda_device, body, advice):
    """A lock in shared memory: __syncthreads() in it would never complete."""
    body = body.format(
        get="""\n.loc 1 1 0\nlock: atom.shared.cas.b32 %r5, [%r9], 0, 1;
        setp.ne.u32 %p2, %r5, 0; @%p2 bra lock;""",
        update="""\n.loc 1 2 0\nld.shared.u32 %r6, [%r9+4]; add.u32 %r6, %r6, 1;
        st.shared.u32 [%r9+4], %r6;""",
        put="\n.loc 1 3 0\natom.shared.exch.b32 %r7, [%r9], 0;",
        fence="membar.cta;",
    )
    found = run(
        f"""setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.v2.u32 [%r9], {{0, 0}}; bar.sync 0;
        and.b32 %r5, %r1, 31; setp.ne.u32 %p1, %r5, 0; @%p1 bra done; {body}""",
        before='.file 1 "lock.cu"',
    )
    texts = [re.sub(r" \(PTX line \d+\)", "", hazard.text) for hazard in found]
    texts = [text.partition("add __threadfence_block() ")[2] for text in texts]
    assert texts
    assert {*texts} == {advice}


def test_a_weak_write_of_lanes_to_two_state_spaces(cuda_device):
    """It ends what was told by an earlier write, as other weak writes do."""
    found = run(
        f"""setp.gt.u32 %p1, %r1, 1; @%p1 bra done; setp.eq.u32 %p2, %r2, 1; @%p2 bra wait;
        st.global.u32 [%rd3], 7; {FENCE} setp.eq.u32 %p4, %r1, 0; @%p4 {SET}
        bar.warp.sync 3; cvt.u64.u32 %rd5, %r3; cvta.shared.u64 %rd5, %rd5; mov.u64 %rd6, word;
        selp.u64 %rd5, %rd6, %rd5, %p4; st.u32 [%rd5], 1; bra done;
        wait: setp.ne.u32 %p4, %r1, 0; @%p4 bra done; look: {GET} setp.eq.u32 %p3, %r5, 0;
        @%p3 bra look; {FENCE} ld.global.u32 %r6, [%rd1];""",
        blocks=2,
        threads=32,
    )
    assert modes(found) == ["read write", "read write"]


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        ("st.volatile.global.u32 [word], 2;", ["read write"]),
        ("atom.global.exch.b32 %r7, [word], 2;", []),
    ],
)
def test_what_another_thread_has_told(cuda_device, write, expected):
    """A write by a third block ends what the first one has told; a read-modify-write passes it on.

    The block that reads does not look at the flag before that, and so has not seen the first write.
    """
    found = run(
        f"""setp.ne.u32 %p1, %r1, 0; @%p1 bra done; setp.eq.u32 %p2, %r2, 1; @%p2 bra one;
        setp.eq.u32 %p2, %r2, 2; @%p2 bra two; st.global.u32 [%rd1], 7; {FENCE} {SET} bra done;
        one: {GET} setp.ne.u32 %p3, %r5, 1; @%p3 bra one; {write}
        st.volatile.global.u32 [word+4], 1; bra done;
        two: ld.volatile.global.u32 %r5, [word+4]; setp.ne.u32 %p3, %r5, 1; @%p3 bra two;
        {GET} {FENCE} ld.global.u32 %r6, [%rd1];""",
        blocks=3,
        threads=32,
    )
    assert modes(found) == expected


@pytest.mark.parametrize("fences", [3, 2, 1, 0])
def test_a_ticket(cuda_device, fences):
    """The block that comes last reads what all blocks have written, and resets the ticket.

    By its atomic on the ticket, it has seen the tickets of the other blocks, even without fences.
    """
    release, acquire = FENCE if fences & 1 else "", FENCE if fences & 2 else ""
    found = run(
        f"""mad.lo.u32 %r5, %r2, 32, %r1; mul.wide.u32 %rd5, %r5, 4; add.u64 %rd5, %rd5, %rd1;
        st.global.u32 [%rd5], %r1; bar.sync 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra join;
        {release} atom.global.add.u32 %r6, [word], 1; {acquire} st.shared.u32 [%r9], %r6;
        join: bar.sync 0; ld.shared.u32 %r6, [%r9]; setp.ne.u32 %p2, %r6, 15; @%p2 bra done;
        mov.u32 %r7, 0; sum: mad.lo.u32 %r5, %r7, 32, %r1; mul.wide.u32 %rd5, %r5, 4;
        add.u64 %rd5, %rd5, %rd1; ld.global.u32 %r8, [%rd5]; add.u32 %r7, %r7, 1;
        setp.lt.u32 %p3, %r7, 16; @%p3 bra sum; @%p1 bra done; st.global.u32 [word], 0;""",
        blocks=16,
        threads=32,
    )
    assert modes(found) == ([] if fences == 3 else ["read write"])
    missing = {0: "before and after", 1: "after", 2: "before"}
    for hazard in found:
        assert f"add __threadfence() {missing[fences]} the atomic at PTX line" in hazard.text


BLOCKS = {
    "their own words": ("mad.lo.u32 %r5, %r2, 64, %r1; mul.wide.u32 %rd5, %r5, 4;"
        "add.u64 %rd5, %rd5, %rd1; st.global.u32 [%rd5], %r1;", []),
    "one word": ("setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%rd1], %r2;", ["write write"]),
    "words between those of another block": (
        "shl.b32 %r5, %r1, 1; and.b32 %r6, %r2, 1; add.u32 %r5, %r5, %r6; shr.u32 %r6, %r2, 1;"
        "mad.lo.u32 %r5, %r6, 128, %r5; mul.wide.u32 %rd5, %r5, 4; add.u64 %rd5, %rd5, %rd1;"
        "st.global.u32 [%rd5], %r1;", []),
    "the same values one word further": (
        "and.b32 %r5, %r2, 1; add.u32 %r5, %r5, %r1; mul.wide.u32 %rd5, %r5, 4;"
        "add.u64 %rd5, %rd5, %rd1; st.global.u32 [%rd5], %r1;", ["write write"]),
    "one word, atomics": ("red.global.add.u32 [%rd1], 1;", []),
    "one word, atomics of other sizes": (
        "red.global.add.u32 [%rd1], 1; red.global.add.u64 [%rd1], 1;", ["atomic atomic"]),
    "one word, atomics in the block": ("red.cta.global.add.u32 [%rd1], 1;", ["atomic atomic"]),
    "an atomic and a write": (
        "red.global.add.u32 [%rd1], 1; setp.eq.u32 %p1, %r2, 3; setp.eq.and.u32 %p1, %r1, 0, %p1;"
        "@%p1 st.global.u32 [%rd1], 9;", ["atomic write"]),
    "a barrier is for one block": (
        "setp.eq.u32 %p1, %r2, 0; @%p1 st.global.u32 [%rd3], %r1; bar.sync 0;"
        "setp.eq.u32 %p1, %r2, 1; @%p1 ld.global.u32 %r5, [%rd3];", ["read write"]),
    "all read": ("ld.global.u32 %r5, [%rd1]; ld.global.u32 %r5, [%rd4];", []),
    "atomics of other sizes": (
        "setp.ne.u32 %p1, %r1, 0; @%p1 bra done; setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r2, 1;"
        "@%p1 red.global.add.u64 [%rd1], 1; @%p2 red.global.add.u32 [%rd1], 1;",
        ["atomic atomic"]),
    "the same values a word further": (
        "setp.ge.u32 %p1, %r1, 8; @%p1 bra done; setp.ge.u32 %p1, %r2, 2; @%p1 bra done;"
        "mul.wide.u32 %rd5, %r2, 4; add.u64 %rd5, %rd3, %rd5; st.global.u32 [%rd5], %r1;",
        ["write write"]),
    "constant and local memory": (
        ".local .b8 own[8]; st.local.u32 [own], %r1; ld.local.u32 %r5, [own];", []),
}  # fmt: skip


@pytest.mark.parametrize("case", BLOCKS)
def test_between_blocks(cuda_device, case):
    body, expected = BLOCKS[case]
    assert modes(run(body, blocks=8)) == expected


def test_reads_by_two_blocks_of_what_one_of_them_writes(cuda_device):
    """The read of the block that writes does not stand for that of the other block."""
    body = """ld.global.u32 %r5, [%rd3]; ld.global.u32 %r6, [%rd3+128];
        mov.u64 %rd6, word; mul.wide.u32 %rd5, %r2, 4; add.u64 %rd5, %rd6, %rd5;
        xor.b32 %r7, %r2, 1; mul.wide.u32 %rd7, %r7, 4; add.u64 %rd7, %rd6, %rd7;
        st.volatile.global.u32 [%rd5], 1;
        wait: ld.volatile.global.u32 %r8, [%rd7]; setp.eq.u32 %p1, %r8, 0; @%p1 bra wait;
        setp.eq.u32 %p2, %r2, 0; @%p2 st.global.u32 [%rd3], %r1;
        @!%p2 st.global.u32 [%rd3+128], %r1;"""
    found = run(body, blocks=2, threads=32)
    assert modes(found) == ["read write"] * 2
    assert {hazard.start // 128 for hazard in found} == {0, 1}


def test_independent_blocks_that_run_alternately(cuda_device):
    """Two blocks use other words of a line, and each of them runs longer than a slice."""
    body = """mul.wide.u32 %rd5, %r2, 4; add.u64 %rd5, %rd1, %rd5; mov.u32 %r5, 0;
        setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 32; @%p1 st.global.u32 [%rd5], 7;
        again: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 40000; @%p3 bra again;
        @%p2 ld.global.u32 %r6, [%rd5];"""
    (hazard,) = run(body, blocks=2)
    assert hazard.count == 2


@pytest.mark.parametrize("pooled", [True, False])
def test_memory_that_is_closed_before_the_kernel_runs(cuda_device, pooled):
    """It has the name of its last buffer, also if a pool has it."""
    text = programs.TEXT.format(body="st.global.u32 [%rd1], %r1;", before="")
    with testing.configured("checks=race,schedule=lazy"), cu.Stream() as stream:
        testing.forget_hazards()
        buffer = cu.DeviceBuffer(64, np.uint32, stream=stream, pooled=pooled, name="old")
        with cu.Module(text) as module:
            module["k"].launch(1, 64, buffer, stream=stream)
            buffer.close(stream=stream)
            stream.synchronize()
    (hazard,) = testing.hazards()
    assert hazard.memory == "DeviceBuffer 'old'"
    here = r"[\w/]*test_race\.py:\d+"
    assert re.search(rf"'old' \(made at {here}, closed at {here}\):", hazard.text), hazard.text


@pytest.mark.parametrize("fences", [True, False])
def test_what_a_flag_has_shown(cuda_device, fences):
    """A thread that saw the flag is ordered after the write of the flag, even without fences."""
    fence = FENCE if fences else ""
    found = run(
        f"""setp.ne.u32 %p1, %r1, 0; @%p1 bra done; setp.eq.u32 %p2, %r2, 1; @%p2 bra wait;
        {fence} {SET} bra done;
        wait: {GET} setp.eq.u32 %p3, %r5, 0; @%p3 bra wait; {fence} ld.global.u32 %r6, [word];
        st.global.u32 [word], 0;""",
        blocks=2,
        threads=32,
    )
    assert modes(found) == []


@pytest.mark.parametrize("update", ["red.global.add.u32 [word], 1;", "red.add.u32 [%rd5], 1;"])
def test_an_atomic_whose_result_nobody_uses_learns_nothing(cuda_device, update):
    """The same is true if another lane updates shared memory at the same time."""
    found = run(
        f"""setp.gt.u32 %p1, %r1, 1; @%p1 bra done; setp.eq.u32 %p4, %r1, 0;
        cvt.u64.u32 %rd5, %r3; cvta.shared.u64 %rd5, %rd5; mov.u64 %rd6, word;
        selp.u64 %rd5, %rd6, %rd5, %p4; setp.eq.u32 %p2, %r2, 1; @%p2 bra other;
        @!%p4 bra done; st.global.u32 [%rd1], 7; {FENCE} red.global.add.u32 [word], 1; bra done;
        other: {update} {FENCE} @%p4 ld.global.u32 %r6, [%rd1];""",
        blocks=2,
        threads=32,
    )
    assert modes(found) == ["read write"]


@pytest.mark.parametrize(("scope", "expected"), [("gpu", []), ("cta", ["read write"] * 2)])
def test_who_has_seen_a_write_of_a_smaller_scope(cuda_device, scope, expected):
    """A read sees a write only if the scope of each includes the thread of the other one."""
    found = run(
        f"""setp.ne.u32 %p1, %r1, 0; @%p1 bra done; setp.eq.u32 %p2, %r2, 1; @%p2 bra wait;
        st.relaxed.{scope}.global.u32 [word], 1; bra done; wait: ld.relaxed.gpu.global.u32 %r5,
        [word]; setp.eq.u32 %p3, %r5, 0; @%p3 bra wait; st.global.u32 [word], 0;""",
        blocks=2,
        threads=32,
    )
    assert modes(found) == [mode.replace("read", "write", i) for i, mode in enumerate(expected)]


def test_a_read_of_one_block_does_not_stand_for_another(cuda_device):
    """The writing block has also read, but only the read of the other block races."""
    found = run(
        """setp.eq.u32 %p2, %r2, 1; @%p2 bra other; ld.global.u32 %r5, [%rd3];
        wait: ld.volatile.global.u32 %r5, [word]; setp.eq.u32 %p3, %r5, 0; @%p3 bra wait;
        st.global.u32 [%rd3], 1; bra done;
        other: ld.global.u32 %r5, [%rd3]; st.volatile.global.u32 [word], 1;""",
        blocks=2,
        threads=32,
    )
    assert modes(found) == ["read write"]


@pytest.mark.parametrize("use", ["", "st.shared.u32 [%r9], %r5;"])
@pytest.mark.parametrize("block", [0, 1])
def test_an_atomic_of_a_smaller_scope(cuda_device, block, use):
    """An atomic of block scope races with an atomic of another block, even if the same thread then
    uses atomics of a wider scope.
    """
    found = run(
        f"""setp.eq.u32 %p1, %r2, {block}; @%p1 red.cta.global.add.u32 [%rd1], 1;
        atom.global.add.u32 %r5, [%rd1], 1; {use}""",
        blocks=2,
        threads=1,
    )
    assert modes(found) == ["atomic atomic"]


def test_rows_of_atomics_of_a_smaller_scope(cuda_device):
    """The same, with blocks that communicate, and with one word for each lane."""
    found = run("ld.volatile.global.u32 %r6, [word]; red.cta.global.add.u32 [%rd3], 1;", blocks=2)
    assert modes(found) == ["atomic atomic"]


def test_strong_reads_do_not_stand_for_a_weak_one(cuda_device):
    """Kept reads by other blocks replace a later read only if the later read races with nothing
    else.
    """
    found = run(
        """setp.eq.u32 %p1, %r2, 0; @%p1 bra zero; setp.ne.u32 %p1, %r1, 0; @%p1 bra done;
        ld.volatile.global.u32 %r5, [%rd1]; atom.global.add.u32 %r5, [word], 1; bra done;
        zero: setp.eq.u32 %p1, %r1, 32; @%p1 bra second; setp.ne.u32 %p1, %r1, 0; @%p1 bra done;
        first: ld.volatile.global.u32 %r5, [word]; setp.lt.u32 %p3, %r5, 3; @%p3 bra first;
        ld.global.u32 %r6, [%rd1]; st.volatile.global.u32 [word+4], 1; bra done;
        second: ld.volatile.global.u32 %r5, [word+4]; setp.eq.u32 %p3, %r5, 0; @%p3 bra second;
        st.volatile.global.u32 [%rd1], 5;""",
        blocks=4,
    )
    assert modes(found) == ["read write"]


def test_what_a_block_has_learned(cuda_device):
    """A thread passes on to other threads of its block what it has learned from another block."""
    found = run(
        f"""setp.eq.u32 %p1, %r2, 1; @%p1 bra one; setp.ne.u32 %p1, %r1, 0; @%p1 bra done;
        st.global.u32 [%rd1], 7; {FENCE} {SET} bra done;
        one: setp.eq.u32 %p1, %r1, 0; @%p1 bra first; setp.ne.u32 %p1, %r1, 32; @%p1 bra done;
        second: ld.acquire.cta.global.u32 %r5, [word+4]; setp.eq.u32 %p3, %r5, 0; @%p3 bra second;
        ld.global.u32 %r6, [%rd1]; bra done;
        first: {GET} setp.eq.u32 %p3, %r5, 0; @%p3 bra first; {FENCE}
        st.release.gpu.global.u32 [word+4], 1;""",
        blocks=2,
    )
    assert modes(found) == []


def test_each_lane_has_its_own_place(cuda_device):
    """The report's place belongs to the thread that the report names."""
    (hazard,) = run(
        """setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1;
        .loc 1 1 0
        @%p1 st.shared.u32 [%r9], 1;
        .loc 1 2 0
        @%p2 st.shared.u32 [%r9+4], 2;
        .loc 1 3 0
        @%p2 st.shared.u32 [%r9+8], 3;
        .loc 1 4 0
        @%p1 ld.shared.u32 %r5, [%r9+8];""",
        before='.file 1 "lanes.cu"',
        threads=32,
    )
    places = {
        access.mode: (access.line, access.thread[0]) for access in (hazard.first, hazard.second)
    }
    assert places == {"write": (3, 1), "read": (4, 0)}


MBARRIER = """setp.ne.u32 %p1, %r1, 0; mov.u32 %r10, bar; @!%p1 mbarrier.init.shared.b64 [%r10], 32;
    bar.sync 0; {EARLY} st.shared.u32 [%r3], 5; {arrive} bra done;
    second: {wait} sub.u32 %r4, %r3, 128; ld.shared.u32 %r5, [%r4];"""
ARRIVE = "mbarrier.arrive.shared.b64 %rd5, [%r10];"
GENERIC_ARRIVE = """cvt.u64.u32 %rd6, %r10; cvta.shared.u64 %rd6, %rd6;
    mbarrier.arrive.b64 %rd5, [%rd6];"""
WAIT = """mbarrier.try_wait.parity.shared.b64 %p3, [%r10], 0; @%p3 bra over; bra second; over:"""


@pytest.mark.parametrize(
    ("arrive", "wait", "expected"),
    [
        (ARRIVE, WAIT, []),
        (GENERIC_ARRIVE, WAIT, []),
        (ARRIVE, "", ["read write"]),
        (ARRIVE.replace("arrive.", "arrive.relaxed.cta."), WAIT, ["read write"]),
    ],
)
def test_an_mbarrier(cuda_device, arrive, wait, expected):
    found = run(MBARRIER.format(EARLY=EARLY, arrive=arrive, wait=wait))
    assert modes(found) == expected


def test_an_mbarrier_that_is_made_again(cuda_device):
    """Who waits for it learns nothing from those who arrived at the earlier one."""
    found = run(
        """mov.u32 %r10, bar; setp.gt.u32 %p1, %r1, 2; @%p1 bra done; setp.eq.u32 %p1, %r1, 1;
        @%p1 bra one; setp.eq.u32 %p1, %r1, 2; @%p1 bra two;
        st.volatile.shared.v2.u32 [%r9+64], {0, 0}; mbarrier.init.shared.b64 [%r10], 1;
        st.shared.u32 [%r9], 5; mbarrier.arrive.shared.b64 %rd5, [%r10];
        st.volatile.shared.u32 [%r9+64], 1; bra done;
        one: ld.volatile.shared.u32 %r5, [%r9+64]; setp.ne.u32 %p2, %r5, 1; @%p2 bra one;
        mbarrier.inval.shared.b64 [%r10]; mbarrier.init.shared.b64 [%r10], 1;
        mbarrier.arrive.shared.b64 %rd5, [%r10]; st.volatile.shared.u32 [%r9+68], 1; bra done;
        two: ld.volatile.shared.u32 %r5, [%r9+68]; setp.ne.u32 %p2, %r5, 1; @%p2 bra two;
        wait: mbarrier.try_wait.parity.shared.b64 %p3, [%r10], 0; @!%p3 bra wait;
        ld.shared.u32 %r6, [%r9];""",
        threads=32,
    )
    assert [hazard.start for hazard in found] == [0]


def test_what_a_hazard_says(cuda_device):
    """A hazard names the memory, the threads, and the lines of the source."""
    body = """.loc 1 12 0
        st.global.u32 [%rd3], %r1;
        .loc 1 14 0
        ld.global.u32 %r5, [%rd4];"""
    (hazard,) = run(body, before='.file 1 "exchange.cu"')
    assert (hazard.kind, hazard.kernel, hazard.memory) == ("race", "k", "DeviceBuffer 'out'")
    assert hazard.stop == hazard.start + 4
    assert hazard.count == 63
    places = {(access.mode, access.file, access.line) for access in (hazard.first, hazard.second)}
    assert places == {("write", "exchange.cu", 12), ("read", "exchange.cu", 14)}
    assert hazard.first.block == hazard.second.block == (0, 0, 0)
    threads = {access.mode: access.thread[0] for access in (hazard.first, hazard.second)}
    assert 4 * threads["write"] == 4 * (threads["read"] + 1) == hazard.start
    assert "add __syncthreads() between exchange.cu:12 (PTX line" in hazard.text
    assert f"bytes {hazard.start} to {hazard.stop} of DeviceBuffer 'out'" in hazard.text
    assert hazard.text.endswith("(63 times)")
    assert testing.hazards() == [hazard]
    testing.forget_hazards()
    assert testing.hazards() == []


@pytest.mark.parametrize(
    ("body", "memory"),
    [
        ("st.global.u32 [word+4], %r1;", "variable 'word'"),
        (f"{STORE} {LOAD}", "shared memory 'tile'"),
    ],
)
def test_names_of_memory(cuda_device, body, memory):
    (hazard,) = run(body)
    assert hazard.memory == memory
    assert hazard.start in range(4, 260, 4)


def test_equal_places_are_one_hazard(cuda_device):
    """Hazards at equal places are one, also in other launches. Benign ones need `benign=True`."""
    run(f"{STORE} {LOAD}")
    with testing.configured("checks=race"):
        assert len(testing.hazards()) == 1
        run("st.shared.u32 [%r9], 7;")
        assert testing.hazards() == []
        assert modes(testing.hazards(benign=True)) == ["write write same"]


def test_benign_races_can_count(cuda_device):
    body = "st.shared.u32 [%r9], 7;"
    with testing.configured("benign=1"):
        assert testing.settings()["benign"] == "1"
        assert modes(run(body)) == ["write write"]
        assert testing.hazards()
    assert modes(run(body)) == ["write write same"]
    assert not testing.hazards()
    with pytest.raises(ValueError, match="benign must be 0 or 1, not 'yes'"):
        testing.configure("benign=yes")


def test_a_value_that_is_the_same_only_at_first(cuda_device):
    """A race is not benign if it was benign only at first."""
    body = "shr.u32 %r5, %r1, 5; st.shared.u32 [%r9], %r5;"
    (hazard,) = run(body)
    assert modes([hazard]) == ["write write"]
    assert hazard.count == 63


def test_each_hazard_is_printed_once(script):
    """Also if an earlier one turns out not to be benign."""
    done = script.run(f"""
    import numpy as np
    import cudadrv as cu
    from cudadrv import testing
    testing.configure("checks=race,hazards=print,schedule=eager")
    out = cu.DeviceBuffer.zeros(64, np.uint32)
    text = {programs.TEXT!r}.format(before="", body='''
        mul.lo.u32 %r5, %r1, %r2; st.shared.u32 [%r9], %r5;
        st.shared.u32 [%r9+512], %r1; ld.shared.u32 %r6, [%r9+512];''')
    with cu.Module(text) as module, cu.Stream() as stream:
        for blocks in (1, 2, 2):
            module["k"].launch(blocks, 64, out, stream=stream)
            stream.synchronize()
    """)
    printed = [line for line in done.stderr.splitlines() if line.startswith("race in kernel")]
    assert len(printed) == len({line.split(" at ")[0] for line in printed}) == 2, done.stderr


def test_nothing_is_checked_by_default(cuda_device):
    assert run(f"{STORE} {LOAD}", checks="off") == []
    with testing.configured("hazards=off"):
        assert run(f"{STORE} {LOAD}") == []


def test_many_hazards(cuda_device):
    """The list has a limit, and says how many are missing."""
    found = run("st.shared.u32 [%r9], %r1;\n" * 1001)
    assert len(found) == 1000
    assert found[-1].text.endswith("more hazards)")


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_in_a_graph(cuda_device, schedule):
    """A kernel in a graph is checked, too."""
    body = "st.global.u32 [%rd3], 1; ld.global.u32 %r5, [%rd4];"
    (hazard,) = programs.run_in_a_graph(body, "race", schedule, launches=2)
    assert (hazard.count, hazard.memory) == (126, "DeviceBuffer 'out'")


def test_wrong_settings(cuda_device):
    with pytest.raises(
        ValueError, match=r"checks must be off, all, or some of race\+init\+sync, not 'memory'"
    ):
        testing.configure("checks=memory")
    with pytest.raises(ValueError, match="hazards must be off, record, print or abort, not '1'"):
        testing.configure("hazards=1")
    assert testing.settings()["checks"] == "off"


def test_1024_threads_on_one_word(cuda_device):
    (hazard,) = run("st.shared.u32 [%r9], %r1;", threads=1024)
    assert hazard.count == 1023
    assert (hazard.start, hazard.stop) == (0, 4)


def test_any_number_of_host_threads(cuda_device):
    """The hazards are the same for any number."""
    body = "st.global.u32 [%rd3], %r2;\nld.global.u32 %r5, [%rd4];"
    found = []
    for threads in (1, 4):
        with testing.configured(f"threads={threads}"):
            found.append(run(body, blocks=64))
    assert found[0] == found[1]
    assert modes(found[0]) == ["read write", "write write"]


RACY = {
    **{f"a block: {name}": (body, 1, 64) for name, (body, races) in BLOCK.items() if races},
    **{f"a warp: {name}": (body, 1, 32) for name, (body, races) in WARP.items() if races},
    **{f"blocks: {name}": (body, 8, 64) for name, (body, races) in BLOCKS.items() if races},
}


@pytest.mark.parametrize("case", RACY)
def test_any_order_of_execution(cuda_device, case):
    """Hazards have the lowest threads, whichever ran first."""
    body, blocks, threads = RACY[case]
    found = []
    for schedule in ("eager", *(f"random,seed={seed}" for seed in (1, 4, 7))):
        with testing.configured(f"schedule={schedule}"):
            hazards = run(body, blocks=blocks, threads=threads, before=FUNCTION)
        found.append([hazard._replace(count=0, text="") for hazard in hazards])
    assert all(each == found[0] for each in found)


def test_a_kernel_that_ends_with_a_fault(script):
    """Hazards before the fault are kept, and the text of the fault is as without the check."""
    done = script.run(f"""
    import numpy as np
    import cudadrv as cu
    from cudadrv import testing
    testing.configure("checks=race,schedule=eager")
    text = {programs.TEXT!r}.format(body="{STORE} {LOAD} st.global.u32 [0], 1;", before="")
    out = cu.DeviceBuffer.zeros(64, np.uint32)
    with cu.Module(text) as module:
        stream = cu.Stream()
        try:
            module["k"].launch(1, 64, out, stream=stream)
            stream.synchronize()
        except cu.CudaError as error:
            print(error.status.name)
    print([hazard.memory for hazard in testing.hazards()])
    print(testing.kernel_fault().split(":")[0])
    """)
    printed = done.stdout.splitlines()
    assert printed[:2] == ["CUDA_ERROR_ILLEGAL_ADDRESS", "[\"shared memory 'tile'\"]"], done.stderr
    assert printed[2].startswith("kernel 'k', PTX line")


def test_threads_in_three_dimensions(cuda_device):
    text = programs.TEXT.format(body="st.shared.u32 [%r9], %r1;", before="")
    out = cu.DeviceBuffer.zeros(64, "u4")
    with testing.configured("checks=race"), cu.Module(text) as module, cu.Stream() as stream:
        module["k"].launch((1, 2), (2, 3, 2), out, stream=stream)
        stream.synchronize()
        (hazard,) = testing.hazards()
    assert {hazard.first.block, hazard.second.block} <= {(0, 0, 0), (0, 1, 0)}
    for x, y, z in (hazard.first.thread, hazard.second.thread):
        assert (x < 2, y < 3, z < 2) == (True, True, True)
