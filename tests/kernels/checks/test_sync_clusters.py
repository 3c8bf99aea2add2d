"""checks=sync: the barrier of a cluster."""

import pytest

from .programs import ALIGNED, ARRIVE, WAIT, fails, run

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

LOW = "setp.ge.u32 %p1, %r1, 16; @%p1 bra high;"  # lanes 0 to 15 go on, the others jump
STORE = "st.global.u32 [%rd3], %r1;"
ALIGNED_ARRIVE, ALIGNED_WAIT = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"
MISTAKES = {
    "none": (f"{ARRIVE} {WAIT} {ARRIVE} {WAIT} {ALIGNED} {ALIGNED}", ""),
    "none, and lanes come one after the other": (
        f"{LOW} {STORE} {ARRIVE} {WAIT} bra done; high: {ARRIVE} {WAIT}", ""),
    "none, and threads have ended": (
        f"setp.ge.u32 %p1, %r1, 40; @%p1 bra done; {ALIGNED} {STORE}", ""),
    "none, and a block has ended": (
        f"setp.eq.u32 %p1, %r2, 1; @%p1 bra done; {ALIGNED} {STORE}", ""),
    "twice": (f"{ARRIVE} {ARRIVE} {WAIT}", "arrives a second time"),
    "no arrival": (WAIT, "waits, and has not arrived before"),
    "no arrival of half of a warp": (
        f"setp.lt.u32 %p1, %r1, 16; @%p1 {ARRIVE} {WAIT}", "waits, and has not arrived before"),
    "a wait more": (f"{ARRIVE} {WAIT} {WAIT}", "waits, and has not arrived before"),
    "a part of a warp arrives": (
        f"{LOW} {ALIGNED_ARRIVE} {WAIT} high: {STORE}", "goes on without it"),
    "a part of a warp waits": (
        f"{ARRIVE} {LOW} {ALIGNED_WAIT} bra done; high: {STORE} {ALIGNED_WAIT}",
        "goes on without it"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes(cuda_device, case):
    body, expected = MISTAKES[case]
    found = run(body, blocks=4, cluster=2, checks="sync")
    assert [expected in hazard.text for hazard in found] == [True] * bool(expected)
    assert all(hazard.memory == "the barrier of the cluster" for hazard in found)


# The two warps of a block wait at two barriers.
APART = """setp.ge.u32 %p2, %r1, 32; @%p2 bra other; bar.sync 1, 64; bra done;
    other: bar.sync 2, 64;"""
HANGS = {
    "the first block does not arrive": (
        f"setp.eq.u32 %p1, %r2, 0; @%p1 bra wait; {ARRIVE} {WAIT} bra done; wait: {APART}",
        "bar.sync by thread (0, 0, 0) of block (0, 0, 0)",
    ),
    "the second block does not arrive": (
        f"setp.eq.u32 %p1, %r2, 1; @%p1 bra wait; {ARRIVE} {WAIT} bra done; wait: {APART}",
        "bar.sync by thread (0, 0, 0) of block (1, 0, 0)",
    ),
    "a warp does not arrive": (
        f"setp.ge.u32 %p1, %r1, 32; @%p1 bra wait; {ARRIVE} {WAIT} wait: bar.sync 1, 64;",
        "bar.sync by thread (32, 0, 0)",
    ),
    "lanes do not arrive": (
        f"{LOW} {ALIGNED_ARRIVE} {WAIT} bra done; high: bar.warp.sync -1;",
        "goes on without it",
    ),
}


@pytest.mark.parametrize("case", HANGS)
def test_what_hangs(cuda_device, case):
    """The report is about the block that does not arrive."""
    body, expected = HANGS[case]
    found, fault = fails(body, blocks=2, threads=64, cluster=2, checks="sync")
    assert len(found) == 1
    assert expected in found[0].text
    assert "hangs" in fault
    assert fails(body, blocks=2, threads=64, cluster=2, checks="off") == ([], fault)
