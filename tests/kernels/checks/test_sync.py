"""checks=sync: barriers, masks of lanes, mbarriers and copies that nothing waits for."""

import pytest

from cudadrv import testing

from . import programs
from .programs import fails, run

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

LOW = "setp.ge.u32 %p1, %r1, 16; @%p1 bra high;"  # lanes 0 to 15 go on, the others jump
END = "bra done; high:"
STORE = "st.global.u32 [%rd3], %r1;"
DOWN = "shfl.sync.down.b32 %r5, %r1, 8, 31, {mask};"
ALL, HALF = -1, 0xFFFF


def check(body, **options):
    return run(body, checks="sync", **options)


def story(hazard):
    """What a hazard says between the places and before the advice, in short."""
    words = {
        "goes on without it": "goes on",
        "which has ended": "ended",
        "which does not execute it": "inactive",
        "which is not in its mask": "not named",
        "which the block does not have": "no such lane",
        "own lane": "itself",
        "in which both lanes are": "two masks",
        "one of them is elsewhere": "elsewhere",
        "not a multiple of 32": "multiple",
        "and the block has": "block",
        "at the same barrier": "two counts",
        "for ever": "for ever",
        "which nothing has initialized": "not initialized",
        "which is invalid since": "invalid",
        "too often": "too often",
        "before anything waits for it": "unfinished",
    }
    assert hazard.kind == "barrier"
    (found,) = [words[key] for key in words if key in hazard.text.partition(";")[0]]
    return f"{hazard.first.mode}: {found}"


WARP = {
    "all lanes": (f"bar.warp.sync -1; {DOWN.format(mask=ALL)}", []),
    "lanes that have ended are named": (f"{LOW} bar.warp.sync -1; {STORE} {END}", []),
    "lanes that end on another way, with a store": (
        f"{LOW} bar.warp.sync -1; {STORE} {END} st.global.u32 [%rd3+512], %r1;",
        [],
    ),
    "the others go on": (
        f"{LOW} bar.warp.sync -1; high: {STORE}",
        ["__syncwarp: goes on"],
    ),
    "the others go on and end first": (
        # The lanes that wait come last, because their code is behind that of the others.
        f"setp.lt.u32 %p1, %r1, 16; @%p1 bra wait; rest: {STORE} bra done;"
        "wait: bar.warp.sync -1; bra rest;",
        ["__syncwarp: goes on"],
    ),
    "the others go on to a barrier": (
        f"{LOW} bar.warp.sync -1; bra done; high: bar.warp.sync 0xffff0000;",
        [],
    ),
    "the mask of those that call": (f"{LOW} bar.warp.sync 0xffff; high: {STORE}", []),
    "barriers at two places": (
        f"{LOW} {STORE} bar.warp.sync -1; {END} bar.warp.sync -1; {STORE}",
        [],
    ),
    "shuffles at two places": (
        f"{LOW} {STORE} shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1; {END}"
        "shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;",
        ["__shfl_xor_sync: elsewhere"],
    ),
    "a vote and a barrier": (
        f"{LOW} {STORE} vote.sync.any.pred %p2, %p1, -1; {END} bar.warp.sync -1;",
        ["__any_sync: elsewhere"],
    ),
    "a lane that is not in its mask": (
        "vote.sync.ballot.b32 %r5, %p1, 0xffff;",
        ["__ballot_sync: itself"],
    ),
    "a mask of one lane, and one that has both": (
        "setp.gt.u32 %p1, %r1, 1; @%p1 bra done; shl.b32 %r6, %r1, 1; or.b32 %r6, %r6, 1;"
        "vote.sync.ballot.b32 %r5, %p1, %r6;",
        ["__ballot_sync: two masks"],
    ),
    "two masks that have both lanes": (
        "setp.eq.u32 %p2, %r1, 9; selp.b32 %r5, 0xfffffffe, -1, %p2;"
        "vote.sync.ballot.b32 %r6, %p1, %r5;",
        ["__ballot_sync: two masks"],
    ),
    "tiles": (
        "and.b32 %r5, %r1, 24; mov.u32 %r6, 255; shl.b32 %r6, %r6, %r5;"
        "shfl.sync.bfly.b32 %r7, %r1, 4, 31, %r6; redux.sync.add.u32 %r8, %r1, %r6;",
        [],
    ),
    "tiles, and some lanes of one come later": (
        "and.b32 %r5, %r1, 16; mov.u32 %r6, 0xffff; shl.b32 %r6, %r6, %r5;"
        "setp.ge.u32 %p1, %r1, 24; @%p1 bra late;"
        "join: shfl.sync.bfly.b32 %r7, %r1, 8, 31, %r6; bra done;"
        f"late: {STORE} bra join;",
        [],
    ),
    "a guard": ("setp.lt.u32 %p2, %r1, 16; @%p2 bar.warp.sync 0xffff;", []),
    "a guard, and a mask of all": (
        f"setp.lt.u32 %p2, %r1, 16; @%p2 bar.warp.sync -1; {STORE}",
        ["__syncwarp: goes on"],
    ),
    "a function": (
        f"{LOW} call meet, (); high: {STORE}",
        ["__syncwarp: goes on"],
    ),
    "a loop that some lanes leave": (
        f"mov.u32 %r5, 0; loop: bar.warp.sync -1; add.u32 %r5, %r5, 16;"
        f"setp.lt.u32 %p2, %r1, %r5; @!%p2 bra loop; {STORE}",
        ["__syncwarp: goes on"],
    ),
    "a loop that some lanes leave for the end": (
        "mov.u32 %r5, 0; loop: bar.warp.sync -1; add.u32 %r5, %r5, 16;"
        f"{STORE} setp.lt.u32 %p2, %r1, %r5; @!%p2 bra loop;",
        [],
    ),
}
SHUFFLES = {
    "down": (DOWN.format(mask=ALL), []),
    "down, half of the lanes": (f"{LOW} {DOWN.format(mask=HALF)} {END} {STORE}",
        ["__shfl_down_sync: not named"]),
    "down, in segments": (
        f"{LOW} shfl.sync.down.b32 %r5, %r1, 8, 0x100f, 0xffff; {END} {STORE}", []),
    "down, the others have ended": (f"{LOW} {DOWN.format(mask=ALL)} {END}",
        ["__shfl_down_sync: ended"]),
    "up": ("shfl.sync.up.b32 %r5, %r1, 1, 0, -1;", []),
    "up, the lower lanes have ended": (
        "setp.lt.u32 %p1, %r1, 4; @%p1 bra done; shfl.sync.up.b32 %r5, %r1, 1, 0, -1;",
        ["__shfl_up_sync: ended"]),
    "xor": ("shfl.sync.bfly.b32 %r5, %r1, 16, 31, -1;", []),
    "a lane by its number": ("shfl.sync.idx.b32 %r5, %r1, 3, 31, -1;", []),
    "a lane that is elsewhere": (
        f"{LOW} shfl.sync.idx.b32 %r5, %r1, 20, 31, 0xffff; {END} {STORE}",
        ["__shfl_sync: not named"]),
    "without .sync": ("shfl.down.b32 %r5, %r1, 8, 31;", []),
    "without .sync, half of the lanes": (
        f"{LOW} {STORE} shfl.down.b32 %r5, %r1, 8, 31; {STORE} bra done; high: {STORE} {STORE}",
        ["shfl.down.b32: inactive"]),
}  # fmt: skip
MEET = ".func meet() { bar.warp.sync -1; ret; }"


@pytest.mark.parametrize("case", WARP)
def test_masks(cuda_device, case):
    body, expected = WARP[case]
    assert [story(hazard) for hazard in check(body, threads=32, before=MEET)] == expected


@pytest.mark.parametrize("case", SHUFFLES)
def test_shuffles(cuda_device, case):
    body, expected = SHUFFLES[case]
    assert [story(hazard) for hazard in check(body, threads=32)] == expected


def test_lanes_that_the_block_does_not_have(cuda_device):
    (hazard,) = check(DOWN.format(mask=ALL), threads=24)
    assert story(hazard) == "__shfl_down_sync: no such lane"
    assert hazard.first.thread == (16, 0, 0)
    assert hazard.second is None


EARLY = "setp.ge.u32 %p1, %r1, 32; @%p1 bra other;"  # the second warp jumps
BARRIERS = {
    "all threads": (f"bar.sync 0; {STORE} barrier.sync 0; bar.red.popc.u32 %r5, 0, %p1;", []),
    "threads that have ended": (
        f"setp.ge.u32 %p1, %r1, 40; @%p1 bra done; bar.sync 0; {STORE}", []),
    "a part of a warp": (f"{LOW} bar.sync 0; high: {STORE}", ["__syncthreads: goes on"]),
    "a guard": (
        f"setp.lt.u32 %p2, %r1, 16; @%p2 bar.sync 0; {STORE}", ["__syncthreads: goes on"]),
    "a part of a warp, not aligned": (
        f"{LOW} {STORE} barrier.sync 0; {END} barrier.sync 0; {STORE}", []),
    "a part of a warp, aligned by its name": (
        f"{LOW} {STORE} barrier.sync.aligned 0; {END} barrier.sync.aligned 0; {STORE}",
        ["__syncthreads: goes on"]),
    "two places in a warp": (
        f"{LOW} {STORE} bar.sync 0; {END} bar.sync 0; {STORE}", ["__syncthreads: goes on"]),
    "two places for two warps": (
        f"{EARLY} {STORE} bar.sync 0; bra done; other: bar.sync 0; {STORE}", []),
    "a part of the block": (f"{EARLY} bar.sync 0; other: {STORE}", ["__syncthreads: goes on"]),
    "a part of the block, with its number": (
        f"{EARLY} bar.sync 1, 32; other: {STORE}", []),
    "a part of the block, with its number, behind the others": (
        f"setp.lt.u32 %p1, %r1, 32; @%p1 bra other; bar.sync 1, 32; other: {STORE}", []),
    "the others have ended": (f"{EARLY} bar.sync 0; {STORE} other:", []),
    "48 threads": (f"add.u32 %r5, %r2, 48; bar.sync 1, %r5; {STORE}", ["bar.sync: multiple"]),
    "no number and all": (
        f"{EARLY} bar.sync 1; bra done; other: bar.sync 1, 64; {STORE}", []),
    "arrive and sync": (
        f"{EARLY} bar.arrive 1, 64; bra done; other: bar.sync 1, 64; {STORE}", []),
    "a part of a warp arrives": (
        f"{EARLY} {LOW} bar.arrive 1, 64; high: {STORE} bra done; other: {STORE}", []),
    "numbers of two phases": (
        f"{EARLY} bar.sync 1, 32; other: bar.sync 0; bar.sync 1, 64; {STORE}", []),
}  # fmt: skip
HANGS = {
    "too many threads": ("barrier.sync 1, 128;", "barrier.sync: block"),
    "two barriers": (f"{EARLY} bar.sync 1, 64; bra done; other: bar.sync 0;", "for ever"),
    "nobody else": (f"{EARLY} bar.sync 1, 64; bra done; other:", "bar.sync: for ever"),
    "a mask and a barrier": (
        f"{LOW} bar.warp.sync -1; {END} barrier.sync 0; {STORE}",
        "__syncwarp: goes on",
    ),
    "two masks": (
        "setp.ge.u32 %p2, %r1, 32; @%p2 bra done;"
        f"{LOW} bar.warp.sync -1; {END} bar.warp.sync 0xffff8000; {STORE}",
        "__syncwarp: goes on",
    ),
}


@pytest.mark.parametrize("case", BARRIERS)
def test_barriers(cuda_device, case):
    body, expected = BARRIERS[case]
    assert [story(hazard) for hazard in check(body)] == expected


def test_two_numbers_of_a_barrier(cuda_device):
    """Which of the numbers counts, depends on the order of the warps; 64 and 96 end in this one."""
    body = f"{EARLY} bar.sync 1, 64; bra done; other: bar.sync 1, 96; {STORE}"
    (hazard,) = check(body, threads=96)
    assert story(hazard) == "bar.sync: two counts"
    assert {int(word) for word in hazard.text.split() if word in ("64", "96")} == {64, 96}


@pytest.mark.parametrize("case", HANGS)
def test_what_hangs(cuda_device, case):
    """A barrier that can never complete ends the launch as without the check."""
    body, expected = HANGS[case]
    found, fault = fails(body, checks="sync")
    assert len(found) == 1
    assert story(found[0]).endswith(expected)
    assert "hangs" in fault
    assert fails(body, checks="off") == ([], fault)


INIT = """setp.ne.u32 %p1, %r1, 0; mov.u32 %r10, bar; @!%p1 mbarrier.init.shared.b64 [%r10], 64;
    bar.sync 0;"""
ARRIVE = "mbarrier.arrive.shared.b64 %rd5, [%r10];"
WAIT = """again: mbarrier.try_wait.parity.shared.b64 %p3, [%r10], 0; @!%p3 bra again;"""
INVAL = "bar.sync 0; @!%p1 mbarrier.inval.shared.b64 [%r10]; bar.sync 0;"
MBARRIERS = {
    "not initialized": (f"mov.u32 %r10, bar; {ARRIVE}", "not initialized"),
    "what looks like one": (
        f"mov.u32 %r10, bar; st.shared.u64 [%r10], 0x8007ffff00000040; bar.sync 0; {ARRIVE}",
        "not initialized",
    ),
    "invalid": (f"{INIT} {ARRIVE} {WAIT} {INVAL} {ARRIVE}", "invalid"),
    "too often": (f"{INIT} {ARRIVE.replace(';', ', 65;')}", "too often"),
}


def test_an_mbarrier(cuda_device):
    assert check(f"{INIT} {ARRIVE} {WAIT} {INVAL}") == []
    assert check(f"{INIT} {ARRIVE} {WAIT} {INVAL} {INIT} {ARRIVE.replace('rd5', 'rd6')}") == []


@pytest.mark.parametrize("case", MBARRIERS)
def test_misused_mbarriers(cuda_device, case):
    """The launch ends in the same way as without the check.
    The check also reports a word that only looks like an mbarrier.
    """
    body, expected = MBARRIERS[case]
    looks_right = case == "what looks like one"
    found, fault = (check(body), None) if looks_right else fails(body, checks="sync")
    assert [story(hazard).partition(": ")[2] for hazard in found] == [expected]
    assert found[0].memory == "shared memory 'bar'"
    assert (found[0].start, found[0].stop) == (0, 8)
    if fault:
        assert fails(body, checks="off") == ([], fault)


COPY = "cp.async.ca.shared.global [%r3], [%rd3], 4;"
HAND = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r10];"
BULK = """setp.ne.u32 %p1, %r1, 0; mov.u32 %r10, bar; @%p1 bra join;
    mbarrier.init.shared.b64 [%r10], 1; {before}
    mbarrier.arrive.expect_tx.shared.b64 %rd5, [%r10], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%rd1], 64, [%r10];
    join: bar.sync 0;"""
COPIES = {
    "wait_all": (f"{COPY} cp.async.wait_all;", False),
    "nothing": (COPY, True),
    "a group": (f"{COPY} cp.async.commit_group; cp.async.wait_group 0;", False),
    "wait_group before the copy is in a group": (f"{COPY} cp.async.wait_group 0;", True),
    "a group that may be left": (f"{COPY} cp.async.commit_group; cp.async.wait_group 1;", True),
    "the older of two groups": (
        f"{COPY} cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1;", False),
    "nothing copied": (f"@%p7 {COPY}", False),
    "an mbarrier": (f"{INIT} {COPY} {HAND} {WAIT}", False),
    "an mbarrier that nobody asks": (f"{INIT} {COPY} {HAND}", True),
    "in bulk": (BULK.format(before="") + WAIT, False),
    "in bulk, and nobody asks": (BULK.format(before=""), True),
    "in bulk twice, and the question is about the first": (
        BULK.format(before="") + """@%p1 bra twice;
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], 64;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9+64], [%rd1], 64,
        [%r10]; twice:""" + WAIT, True),
    "in bulk, and the question is about an earlier phase": (
        BULK.format(before=WAIT.replace("[%r10], 0;", "[%r10], 1;")), True),
}  # fmt: skip


@pytest.mark.parametrize("case", COPIES)
def test_copies(cuda_device, case):
    body, unfinished = COPIES[case]
    found = check(f"setp.ne.u32 %p7, %r1, %r1; {body}")
    assert len(found) == unfinished
    assert all(story(hazard).endswith("unfinished") for hazard in found)


@pytest.mark.parametrize("store", [STORE, f"setp.ne.u32 %p3, %r1, 0; @%p3 {STORE}"])
def test_what_an_earlier_block_did_last(cuda_device, store):
    """Half of the lanes of odd blocks end at once; those of the block before them did not."""
    body = f"""and.b32 %r5, %r2, 1; setp.eq.u32 %p1, %r5, 1; setp.ge.and.u32 %p1, %r1, 16, %p1;
        @%p1 bra done; bar.warp.sync -1; {store}"""
    assert check(body, blocks=64, threads=32) == []


def test_what_a_hazard_says(cuda_device):
    body = f""".loc 1 12 0
        {LOW}
        .loc 2 99 0, function_name $x, inlined_at 1 13 5
        bar.warp.sync -1;
        .loc 1 14 0
        high: {STORE}"""
    files = '.file 1 "exchange.cu"\n.file 2 "/include/intrinsics.h"'
    (hazard,) = check(body, threads=32, before=files, blocks=2)
    first, second = hazard.first, hazard.second
    assert (first.mode, first.file, first.line) == ("__syncwarp", "exchange.cu", 13)
    assert first.inner == "/include/intrinsics.h:99"
    assert (second.mode, second.line, second.inner) == ("st.global.u32", 14, None)
    assert (first.thread, second.thread) == ((0, 0, 0), (16, 0, 0))
    assert hazard.count == 2
    assert hazard.text == (
        f"barrier in kernel 'k': __syncwarp by thread (0, 0, 0) of block {first.block} at"
        f" exchange.cu:13 (intrinsics.h:99, PTX line {first.ptx_line}) waits for the lanes of its"
        " mask 0xffffffff, and one of them goes on without it: st.global.u32 by thread (16, 0, 0)"
        f" of block {second.block} at exchange.cu:14 (PTX line {second.ptx_line}); let all lanes of"
        " the mask call it, or pass the mask of those that do: 0x0000ffff here (2 times)"
    )


@pytest.mark.parametrize("body", [f"{LOW} bar.warp.sync -1; high: {STORE}", "bar.sync 1, 48;"])
def test_any_order_of_execution(cuda_device, body):
    """Hazards have the lowest block and thread, whichever ran first."""
    found = []
    for schedule in ("eager", *(f"random,seed={seed}" for seed in (1, 4, 7))):
        with testing.configured(f"schedule={schedule}"):
            hazards = check(body, blocks=8)
        found.append([hazard._replace(count=0, text="") for hazard in hazards])
    assert found[0]
    assert all(each == found[0] for each in found)


def test_lines_of_the_source_are_one_hazard(cuda_device):
    """A compiler may have unrolled a loop."""
    body = f".loc 1 12 0\n{LOW} {DOWN.format(mask=ALL)} {DOWN.format(mask=ALL)} {END}"
    (hazard,) = check(body, threads=32, before='.file 1 "sum.cu"')
    assert (hazard.count, hazard.first.line) == (2, 12)


def test_merged_code_is_not_behind(cuda_device):
    """Line 0 is code that a compiler has merged: lanes that return early may have run it, too."""
    body = f".loc 1 12 0\n{LOW} bar.warp.sync -1;\n.loc 1 0 0\nhigh: {STORE}"
    assert check(body, threads=32, before='.file 1 "sum.cu"') == []


def test_both_checks(cuda_device):
    body = f"{LOW} bar.warp.sync -1; high: st.shared.u32 [%r3], %r1; ld.shared.u32 %r5, [%r4];"
    for checks, kinds in (
        ("race+sync", 2),
        ("all", 2),
        ("sync+race", 2),
        ("race", 1),
        ("sync", 1),
    ):
        found = run(body, threads=32, checks=checks)
        assert len({hazard.kind for hazard in found}) == kinds, checks
        assert "off" not in checks


def test_settings(cuda_device):
    with testing.configured("checks=sync+race"):
        assert testing.settings()["checks"] == "race+sync"
    with testing.configured("checks=all"):
        assert testing.settings()["checks"] == "race+init+sync"
    message = r"checks must be off, all, or some of race\+init\+sync, not 'race\+\+'"
    with pytest.raises(ValueError, match=message):
        testing.configure("checks=race++")


def test_what_follows_is_not_reported(cuda_device):
    """After lanes have diverged wrongly, everything else that the warp does is wrong, too."""
    body = f"""{LOW} bar.warp.sync -1; high: {DOWN.format(mask=HALF)} {STORE}
        {DOWN.format(mask=ALL)} bar.sync 0; {STORE}"""
    found, _ = fails(body, threads=32, checks="sync")
    assert len(found) == 1, [hazard.text for hazard in found]


def test_many_hazards(cuda_device):
    """A thousand hazards are kept."""
    found = check("shfl.sync.idx.b32 %r5, %r1, 31, 31, -1;\n" * 1001, threads=31)
    assert len(found) == 1000
    assert found[-1].text.endswith("more hazards)")


def test_1024_threads(cuda_device):
    (hazard,) = check(f"{LOW} bar.sync 0; high: {STORE}", threads=1024)
    assert hazard.count == 1


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_in_a_graph(cuda_device, schedule):
    body = f"{LOW} bar.sync 0; high: {STORE}"
    (hazard,) = programs.run_in_a_graph(body, "sync", schedule)
    assert story(hazard) == "__syncthreads: goes on"
