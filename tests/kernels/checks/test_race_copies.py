"""checks=race: copies by cp.async, which go on until a thread waits for them."""

import pytest

from .programs import modes, run

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

# Each thread copies its own word of the buffer to its own word of `tile`.
COPY = "cp.async.ca.shared.global [%r3], [%rd3], 4;"
NEXT = "cp.async.ca.shared.global [%r3+512], [%rd3+512], 4;"
COMMIT, BARRIER = "cp.async.commit_group;", "bar.sync 0;"
OWN, OTHER = "ld.shared.u32 %r5, [%r3];", "ld.shared.u32 %r5, [%r4];"
WAIT = "cp.async.wait_all;"
READ, WRITE = ["asynchronous write read"], ["asynchronous write write"]
BOTH = ["asynchronous write asynchronous write"]

# The body, and the races.
WAITS = {
    "wait_all": (f"{COPY} {WAIT} {OWN}", []),
    "no wait": (f"{COPY} {OWN}", READ),
    "no wait for a write": (f"{COPY} st.shared.u32 [%r3], 7;", WRITE),
    "a group": (f"{COPY} {COMMIT} cp.async.wait_group 0; {OWN}", []),
    "a group that is not waited for": (f"{COPY} {COMMIT} cp.async.wait_group 1; {OWN}", READ),
    "a copy that is in no group": (f"{COPY} cp.async.wait_group 0; {OWN}", READ),
    "the first of two groups": (
        f"{COPY} {COMMIT} {NEXT} {COMMIT} cp.async.wait_group 1; {OWN}",
        [],
    ),
    "the second of two groups": (
        f"{COPY} {COMMIT} {NEXT} {COMMIT} cp.async.wait_group 1; ld.shared.u32 %r5, [%r3+512];",
        READ,
    ),
    "an empty group": (f"{COPY} {COMMIT} {COMMIT} cp.async.wait_group 1; {OWN}", []),
    "the neighbour's copy": (f"{COPY} {WAIT} {BARRIER} {OTHER}", []),
    "no barrier": (f"{COPY} {WAIT} {OTHER}", READ),
    "a barrier and no wait": (f"{COPY} {BARRIER} {OTHER}", READ),
    "a wait behind the barrier": (f"{COPY} {BARRIER} {WAIT} {OTHER}", READ),
    "two barriers and no wait": (f"{COPY} {BARRIER} {BARRIER} {OTHER}", READ),
    "a barrier on both sides": (f"{COPY} {BARRIER} {WAIT} {BARRIER} {OTHER}", []),
    "a copy over what others read": (f"{OTHER} {COPY} {WAIT}", READ),
    "a copy over what others have read": (f"{OTHER} {BARRIER} {COPY} {WAIT}", []),
    "a copy over what the thread reads": (f"{OWN} {COPY} {WAIT}", []),
    "two copies to the same place": (f"{COPY} {COPY} {WAIT}", BOTH),
    "the source is written": (f"{COPY} st.global.u32 [%rd3], 7;", ["asynchronous read write"]),
    "the source is written behind the wait": (f"{COPY} {WAIT} st.global.u32 [%rd3], 7;", []),
    "the source is written before": (f"st.global.u32 [%rd3], 7; {COPY} {WAIT}", []),
    "the source is written by another thread": (
        f"{COPY} {WAIT} st.global.u32 [%rd4], 7;",
        ["asynchronous read write"],
    ),
    "the source is only read": (f"{COPY} ld.global.u32 %r5, [%rd3]; {WAIT}", []),
    "one warp copies for another one": (
        f"""setp.ge.u32 %p1, %r1, 32; @%p1 bra second; {COPY} {WAIT} bar.arrive 1, 64; bra done;
        second: bar.sync 1, 64; ld.shared.u32 %r5, [%r3+-128];""",
        [],
    ),
    "one warp copies for another one, and does not wait": (
        f"""setp.ge.u32 %p1, %r1, 32; @%p1 bra second; {COPY} bar.arrive 1, 64; bra done;
        second: bar.sync 1, 64; ld.shared.u32 %r5, [%r3+-128];""",
        READ,
    ),
    "an ignored source": (
        "cp.async.ca.shared.global [%r3], [%rd3], 4, 0; st.global.u32 [%rd3], 7;",
        [],
    ),
    "16 bytes": (
        """shl.b32 %r5, %r1, 4; add.u32 %r5, %r5, %r9; mul.wide.u32 %rd5, %r1, 16;
        add.u64 %rd5, %rd5, %rd1; cp.async.cg.shared.global [%r5], [%rd5], 16;"""
        f"cp.async.wait_all; {BARRIER} {OTHER}",
        [],
    ),
    "16 bytes and no wait": (
        """shl.b32 %r5, %r1, 4; add.u32 %r5, %r5, %r9; mul.wide.u32 %rd5, %r1, 16;
        add.u64 %rd5, %rd5, %rd1; cp.async.cg.shared.global [%r5], [%rd5], 16;"""
        f"{BARRIER} {OTHER}",
        READ,
    ),
    "one lane": (f"setp.eq.u32 %p1, %r1, 7; @%p1 {COPY} {BARRIER} {OTHER}", READ),
    "one lane that waits": (
        f"setp.eq.u32 %p1, %r1, 7; @%p1 {COPY} @%p1 {WAIT} {BARRIER} {OTHER}",
        [],
    ),
    "the wait of another thread": (
        f"setp.eq.u32 %p1, %r1, 7; @%p1 {COPY} @!%p1 {WAIT} {BARRIER} {OTHER}",
        READ,
    ),
    "__syncwarp": (f"{COPY} {WAIT} bar.warp.sync -1; and.b32 %r5, %r1, 31;"
        f"setp.eq.u32 %p1, %r5, 31; @%p1 bra done; {OTHER}", []),
    "__syncwarp and no wait": (f"{COPY} bar.warp.sync -1; and.b32 %r5, %r1, 31;"
        f"setp.eq.u32 %p1, %r5, 31; @%p1 bra done; {OTHER}", READ),
}  # fmt: skip


@pytest.mark.parametrize("case", WAITS)
def test_waits(cuda_device, case):
    body, expected = WAITS[case]
    assert modes(run(body)) == expected


# Two stages: each iteration copies what the one behind it reads.
PIPELINE = f"""{COPY} {COMMIT} mov.u32 %r10, 0;
loop: xor.b32 %r11, %r10, 1; and.b32 %r11, %r11, 1; shl.b32 %r11, %r11, 9; add.u32 %r12, %r3, %r11;
cp.async.ca.shared.global [%r12], [%rd3], 4; {COMMIT}
{{wait}} {{before}}
and.b32 %r11, %r10, 1; shl.b32 %r11, %r11, 9; add.u32 %r12, %r3, %r11;
xor.b32 %r12, %r12, 4; ld.shared.u32 %r5, [%r12];
{{behind}} add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 5; @%p1 bra loop; {WAIT}"""


@pytest.mark.parametrize("threads", [32, 64])
@pytest.mark.parametrize(
    ("wait", "before", "behind", "expected"),
    [
        ("cp.async.wait_group 1;", BARRIER, BARRIER, set()),
        ("cp.async.wait_group 2;", BARRIER, BARRIER, {*READ, *BOTH}),
        ("cp.async.wait_group 1;", "", BARRIER, {*READ}),
        ("cp.async.wait_group 1;", BARRIER, "", {*READ}),
    ],
)
def test_a_pipeline(cuda_device, threads, wait, before, behind, expected):
    body = PIPELINE.format(wait=wait, before=before, behind=behind)
    assert set(modes(run(body, threads=threads))) == expected


INIT = f"""setp.eq.u32 %p6, %r1, 0; mov.u32 %r10, bar; @%p6 mbarrier.init.shared.b64 [%r10], {{}};
{BARRIER}"""
ARRIVE = "mbarrier.arrive.shared.b64 %rd5, [%r10];"
COPIED = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r10];"
PHASE = "wait{0}: mbarrier.try_wait.parity.shared.b64 %p7, [%r10], {0}; @!%p7 bra wait{0};"
MBARRIER = {
    "copies": (64, f"{COPY} {COPIED} {PHASE.format(0)} {OTHER}", []),
    "copies, by one more arrival": (
        64,
        f"{COPY} cp.async.mbarrier.arrive.shared.b64 [%r10]; {ARRIVE} {PHASE.format(0)} {OTHER}",
        [],
    ),
    "only the threads arrive": (64, f"{COPY} {ARRIVE} {PHASE.format(0)} {OTHER}", READ),
    "own copies, only the threads arrive": (64, f"{COPY} {ARRIVE} {PHASE.format(0)} {OWN}", READ),
    "the copies arrive too early": (64, f"{COPIED} {COPY} {PHASE.format(0)} {OTHER}", READ),
    "nobody waits": (64, f"{COPY} {COPIED} {OTHER}", READ),
    "copies in a group": (64, f"{COPY} {COMMIT} {COPIED} {PHASE.format(0)} {OTHER}", []),
    "a source": (64, f"{COPY} {COPIED} {PHASE.format(0)} st.global.u32 [%rd4], 1;", []),
    "a source that is still read": (
        64,
        f"{COPY} {ARRIVE} {PHASE.format(0)} st.global.u32 [%rd4], 1;",
        ["asynchronous read write"],
    ),
    "copies do not tell what the thread has written": (
        64,
        f"st.shared.u32 [%r3+1024], %r1; {COPY} {COPIED} {PHASE.format(0)}"
        "ld.shared.u32 %r5, [%r4+1024];",
        ["read write"],
    ),
    "copies of the next phase": (
        64,
        f"{COPY} {COPIED} {PHASE.format(0)} {NEXT} {COPIED} {PHASE.format(1)}"
        "ld.shared.u32 %r5, [%r4+512];",
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MBARRIER)
def test_mbarriers(cuda_device, case):
    arrivals, body, expected = MBARRIER[case]
    assert modes(run(INIT.format(arrivals) + body)) == expected


def test_an_mbarrier_and_then_a_barrier(cuda_device):
    """After a barrier all threads know what any of them has learned from an mbarrier."""
    found = run(
        f"""{INIT.format(64)} {COPY} {COPIED} {NEXT} {PHASE.format(0)} {OTHER} {BARRIER} {COPY}
        {COPIED} {PHASE.format(1)} {OTHER} {BARRIER} {COPY} {WAIT}"""
    )
    assert found == []


@pytest.mark.parametrize(("waits", "expected"), [(False, ["read write"]), (True, [])])
def test_what_is_told_in_the_next_phase(cuda_device, waits, expected):
    """Those who wait for a phase do not learn what others have told in the next one."""
    phase = f"setp.eq.u32 %p2, %r1, 2; @%p2 {ARRIVE} {PHASE.format(1)}" if waits else ""
    found = run(
        f"""{INIT.format(2)} setp.gt.u32 %p1, %r1, 1; @%p1 bra others; {ARRIVE}
        setp.eq.u32 %p1, %r1, 1; @%p1 bra done; st.shared.u32 [%r3], 5; {ARRIVE} bra done;
        others: {PHASE.format(0)} {phase} ld.shared.u32 %r5, [%r9];""",
        threads=32,
    )
    assert modes(found) == expected


REMEDIES = {
    "wait for the copy: cp.async.wait_group (cuda::pipeline wait, __pipeline_wait_prior) before "
    "copy.cu:14": (COPY, OWN),
    "wait for the copy: cp.async.wait_group (cuda::pipeline wait, __pipeline_wait_prior) and "
    "__syncthreads(), before copy.cu:14": (COPY, BARRIER + OTHER),
    "add __syncthreads() between the wait for the copy and copy.cu:14": (COPY + WAIT, OTHER),
    "add __syncthreads() between copy.cu:12": (OTHER, COPY),
}


@pytest.mark.parametrize("remedy", REMEDIES)
def test_remedies(cuda_device, remedy):
    first, second = REMEDIES[remedy]
    (hazard,) = run(
        f".loc 1 12 0\n{first}\n.loc 1 14 0\n{second} {WAIT}", before='.file 1 "copy.cu"'
    )
    assert remedy in hazard.text
    assert {hazard.first.line, hazard.second.line} == {12, 14}
    assert "asynchronous write by thread" in hazard.text
