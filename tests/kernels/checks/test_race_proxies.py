"""checks=race: bulk copies and wgmma, in the async proxy, and reads that may miss writes."""

import pytest

from .programs import modes, run

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

BARRIER, FENCE = "bar.sync 0;", "fence.proxy.async;"
FIRST = "setp.ne.u32 %p6, %r1, 0;"  # %p6: all threads except the first
STORE, LOAD = "st.shared.u32 [%r3], %r1;", "ld.shared.u32 %r5, [%r3];"
GLOBAL_LOAD = "ld.global.u32 %r5, [%rd3];"
# The first thread copies the words of all threads from `tile` to the buffer.
OUT = "@!%p6 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r9], 256;"
COMMIT = "@!%p6 cp.async.bulk.commit_group;"
READ_WAIT = "@!%p6 cp.async.bulk.wait_group.read {};"
WAIT = "@!%p6 cp.async.bulk.wait_group {};"
DONE = f"{OUT} {COMMIT} {WAIT.format(0)}"

# The body, and the races.
STORES = {
    "a fence, then a barrier": (f"{STORE} {FENCE} {BARRIER} {DONE}", []),
    "a fence for shared memory": (
        f"{STORE} fence.proxy.async.shared::cta; {BARRIER} {DONE}",
        [],
    ),
    "a fence for global memory": (
        f"{STORE} fence.proxy.async.global; {BARRIER} {DONE}",
        ["asynchronous read write"],
    ),
    "a barrier, then a fence": (f"{STORE} {BARRIER} {FENCE} {DONE}", []),
    "a fence of the thread that copies": (f"{STORE} {BARRIER} @!%p6 {FENCE} {DONE}", []),
    "a fence of another thread": (
        f"{STORE} {BARRIER} @%p6 {FENCE} {DONE}",
        ["asynchronous read write"],
    ),
    "a fence of another thread, and a barrier": (
        f"{STORE} {BARRIER} setp.eq.u32 %p5, %r1, 40; @%p5 {FENCE} {BARRIER} {DONE}",
        [],
    ),
    "no fence": (f"{STORE} {BARRIER} {DONE}", ["asynchronous read write"]),
    "a fence before the write": (
        f"{FENCE} {STORE} {BARRIER} {DONE}",
        ["asynchronous read write"],
    ),
    "other fences": (
        f"{STORE} fence.acq_rel.gpu; fence.proxy.alias; {BARRIER} {DONE}",
        ["asynchronous read write"],
    ),
    "no barrier": (f"{STORE} {FENCE} {DONE}", ["asynchronous read write"]),
    "what cp.async has copied needs no fence": (
        f"cp.async.ca.shared.global [%r3], [%rd3+1024], 4; cp.async.wait_all; {BARRIER} {DONE}",
        [],
    ),
    "reads need no fence": (
        f"ld.global.u32 %r5, [%rd3]; {LOAD} {BARRIER} {DONE}",
        [],
    ),
    "fences in a loop": (
        f"""mov.u32 %r10, 0; loop: {STORE} {FENCE} {BARRIER} {DONE} {BARRIER}
        add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 40; @%p1 bra loop;""",
        [],
    ),
    "many fences that the other warp does not know": (
        f"""setp.ge.u32 %p1, %r1, 32; @%p1 bra second; {STORE} {FENCE} bar.arrive 1, 64;
        {FENCE * 20} bra done; second: bar.sync 1, 64; setp.ne.u32 %p6, %r1, 32;
        {DONE.replace("256", "128")}""",
        [],
    ),
    "no fence in a later iteration": (
        f"""mov.u32 %r10, 0; loop: {STORE} setp.lt.u32 %p2, %r10, 3; @%p2 {FENCE} {BARRIER} {DONE}
        {BARRIER} add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 6; @%p1 bra loop;""",
        ["asynchronous read write"],
    ),
    "the source is free behind wait_group.read": (
        f"{FIRST} {OUT} {COMMIT} {READ_WAIT.format(0)} {BARRIER} {STORE}",
        [],
    ),
    "the source is free behind wait_group": (f"{DONE} {BARRIER} {STORE}", []),
    "the source is not free": (f"{OUT} {COMMIT} {BARRIER} {STORE}", ["asynchronous read write"]),
    "no barrier behind the wait": (f"{DONE} {STORE}", ["asynchronous read write"]),
    "the source is read": (f"{OUT} {COMMIT} {LOAD}", []),
    "the last group is not waited for": (
        f"{OUT} {COMMIT} {READ_WAIT.format(1)} {BARRIER} {STORE}",
        ["asynchronous read write"],
    ),
    "the last but one group": (
        f"""{OUT} {COMMIT} @!%p6 cp.async.bulk.global.shared::cta.bulk_group [%rd1+1024], [%r9+512],
        256; {COMMIT} {READ_WAIT.format(1)} {BARRIER} {STORE}""",
        [],
    ),
    "the target is written": (f"{DONE} {BARRIER} {GLOBAL_LOAD}", []),
    "wait_group.read does not wait for the target": (
        f"{OUT} {COMMIT} {READ_WAIT.format(0)} {BARRIER} {GLOBAL_LOAD}",
        ["asynchronous write read"],
    ),
    "the target was written before": (
        f"st.global.u32 [%rd3], 1; {BARRIER} {DONE}",
        ["asynchronous write write"],
    ),
    "the target was written before, and a fence": (
        f"st.global.u32 [%rd3], 1; {FENCE} {BARRIER} {DONE}",
        [],
    ),
    "the target was written before, and a fence for shared memory": (
        f"st.global.u32 [%rd3], 1; fence.proxy.async.shared::cta; {BARRIER} {DONE}",
        ["asynchronous write write"],
    ),
    "the target was read before": (f"{GLOBAL_LOAD} {BARRIER} {DONE}", []),
    "two copies to the same place": (
        f"{OUT} {OUT} {COMMIT} {WAIT.format(0)}",
        ["asynchronous write asynchronous write"],
    ),
    "two copies, one after the other": (f"{DONE} {DONE}", []),
    "the same copy by all lanes of a warp": (
        f"setp.gt.u32 %p6, %r1, 31; {STORE} {FENCE} {BARRIER} {DONE} {BARRIER} {STORE}",
        [],
    ),
    "the same copy by two warps": (
        f"and.b32 %r6, %r1, 31; setp.ne.u32 %p6, %r6, 0; {DONE}",
        ["asynchronous write asynchronous write"],
    ),
    "the same copy, and only one lane waits": (
        f"setp.gt.u32 %p6, %r1, 31; {OUT} {COMMIT} {FIRST} {READ_WAIT.format(0)} {BARRIER} {STORE}",
        ["asynchronous read write"],
    ),
}  # fmt: skip
REDUCE = """@!%p6 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r9],
256;"""


@pytest.mark.parametrize("case", STORES)
def test_copies_to_global_memory(cuda_device, case):
    body, expected = STORES[case]
    assert modes(run(f"{FIRST} {body}")) == expected


@pytest.mark.parametrize(
    ("body", "blocks", "expected"),
    [
        ("{0}", 4, []),
        (f"{OUT}", 4, ["asynchronous write asynchronous write"]),
        ("{0} @!%p6 red.global.add.u32 [%rd1], 1;", 1, ["asynchronous atomic atomic"]),
        ("@!%p6 red.global.add.u32 [%rd1], 1; {0}", 1, ["asynchronous atomic atomic"]),
        ("{0} {0}", 1, []),
    ],
)
def test_reductions(cuda_device, body, blocks, expected):
    body = f"{FIRST} {body.format(REDUCE)} {COMMIT} {WAIT.format(0)}"
    assert modes(run(body, blocks=blocks)) == expected


# The first thread copies to `tile`, and others wait for the mbarrier.
INIT = f"{FIRST} mov.u32 %r10, bar; @!%p6 mbarrier.init.shared.b64 [%r10], 1; {BARRIER}"
EXPECT = "@!%p6 mbarrier.arrive.expect_tx.shared.b64 %rd5, [%r10], 256;"
IN = """@!%p6 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%rd1], 256,
    [%r10];"""
PHASE = "wait{0}: mbarrier.try_wait.parity.shared.b64 %p7, [%r10], {1}; @!%p7 bra wait{0};"
TEST = PHASE.format(0, 0)
LOADS = {
    "a wait": (f"{EXPECT} {IN} {TEST} {LOAD}", []),
    "no wait": (f"{EXPECT} {IN} {BARRIER} {LOAD}", ["asynchronous write read"]),
    "the thread that copies does not wait": (f"{EXPECT} {IN} @!%p6 {LOAD}",
        ["asynchronous write read"]),
    "a false test": (
        f"""{EXPECT} {IN} mbarrier.test_wait.parity.shared.b64 %p7, [%r10], 1; @%p7 {LOAD}
        {BARRIER} {LOAD}""",
        ["asynchronous write read"],
    ),
    "one thread waits, and all come to a barrier": (
        f"{EXPECT} {IN} @%p6 bra over; {TEST} over: {BARRIER} {LOAD}",
        [],
    ),
    "a write behind the wait": (f"{EXPECT} {IN} {TEST} {STORE}", []),
    "a write before": (f"{STORE} {BARRIER} {EXPECT} {IN} {TEST} {LOAD}",
        ["asynchronous write write"]),
    "a write before, and a fence": (f"{STORE} {FENCE} {BARRIER} {EXPECT} {IN} {TEST} {LOAD}", []),
    "a read before": (f"{LOAD} {BARRIER} {EXPECT} {IN} {TEST} {LOAD}", []),
    "a read before, and no barrier": (f"{LOAD} {EXPECT} {IN} {TEST} {LOAD}",
        ["asynchronous write read"]),
    "the source is written behind the wait": (f"{EXPECT} {IN} {TEST} st.global.u32 [%rd3], 1;", []),
    "the source is written": (f"{EXPECT} {IN} {BARRIER} st.global.u32 [%rd3], 1;",
        ["asynchronous read write"]),
    "the source was written": (f"st.global.u32 [%rd3], 1; {BARRIER} {EXPECT} {IN} {TEST}",
        ["asynchronous read write"]),
    "the source was written, and a fence": (
        f"st.global.u32 [%rd3], 1; {FENCE} {BARRIER} {EXPECT} {IN} {TEST}", []),
    "a copy on, without a fence": (
        f"""{EXPECT} {IN} {TEST} @!%p6 cp.async.bulk.global.shared::cta.bulk_group [%rd1+2048],
        [%r9], 256;""", []),
    "the wrong mbarrier": (
        f"""@!%p6 mbarrier.init.shared.b64 [%r9+1024], 1; {BARRIER}
        @!%p6 mbarrier.arrive.shared.b64 %rd5, [%r9+1024]; {EXPECT} {IN} add.u32 %r10, %r9, 1024;
        {TEST} {LOAD}""",
        ["asynchronous write read"],
    ),
    "the wait for the copy before": (
        f"""{EXPECT} {IN} {TEST} {BARRIER} {EXPECT} {IN.replace("[%r9]", "[%r9+512]")} {BARRIER}
        ld.shared.u32 %r5, [%r3+512];""",
        ["asynchronous write read"],
    ),
    "the wait for the other copy": (
        f"""@!%p6 mbarrier.init.shared.b64 [%r9+1024], 1; {BARRIER} {EXPECT} {IN}
        add.u32 %r10, %r9, 1024; {EXPECT} {IN.replace("[%r9]", "[%r9+512]")} {TEST} {LOAD}""",
        ["asynchronous write read"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LOADS)
def test_copies_to_shared_memory(cuda_device, case):
    body, expected = LOADS[case]
    assert modes(run(f"{INIT} {body}")) == expected


FLAG = """setp.eq.u32 %p2, %r2, 1; @%p2 bra wait; @%p6 bra done; st.global.u32 [%rd1], 7; {0}
fence.acq_rel.gpu; st.volatile.global.u32 [word], 1; bra done;
wait: ld.volatile.global.u32 %r5, [word]; setp.eq.u32 %p3, %r5, 0; @%p3 bra wait;
fence.acq_rel.gpu; {1}"""


@pytest.mark.parametrize(
    ("fence", "expected"), [(FENCE, []), ("", ["asynchronous read write"])], ids=["fence", "none"]
)
def test_what_another_block_has_written(cuda_device, fence, expected):
    copy = f"{EXPECT} {IN} {TEST.replace('wait0', 'copied')}"
    found = run(f"{INIT} {FLAG.format(fence, copy)}", blocks=2, threads=32)
    assert modes(found) == expected


# One warp copies to one buffer again and again, and the other warp reads it. `%r10` is an mbarrier
# for full, and `%r11` one for empty.
LOOP = f"""mov.u32 %r10, bar; add.u32 %r11, %r9, 1024; setp.ne.u32 %p6, %r1, 0;
@!%p6 mbarrier.init.shared.b64 [%r10], 1; @!%p6 mbarrier.init.shared.b64 [%r11], 32; {BARRIER}
mov.u32 %r12, 0; setp.ge.u32 %p1, %r1, 32; @%p1 bra reader; @%p6 bra done;
writer: and.b32 %r13, %r12, 1; xor.b32 %r13, %r13, 1;
empty: {{empty}} {EXPECT} {IN} add.u32 %r12, %r12, 1; setp.lt.u32 %p2, %r12, 4; @%p2 bra writer;
bra done; reader: and.b32 %r13, %r12, 1; sub.u32 %r3, %r3, 128; full: {{full}} {LOAD}
{{release}} add.u32 %r3, %r3, 128;
add.u32 %r12, %r12, 1; setp.lt.u32 %p2, %r12, 4; @%p2 bra reader;"""
EMPTY = "mbarrier.try_wait.parity.shared.b64 %p7, [%r11], %r13; @!%p7 bra empty;"
FULL = "mbarrier.try_wait.parity.shared.b64 %p7, [%r10], %r13; @!%p7 bra full;"
RELEASE = "mbarrier.arrive.shared.b64 %rd6, [%r11];"


def test_a_loop_of_copies(cuda_device):
    assert run(LOOP.format(empty=EMPTY, full=FULL, release=RELEASE)) == []


def test_a_loop_without_an_order(cuda_device):
    """The reader tells the writer neither that it has read nor that the last copy is complete."""
    release = RELEASE.replace("arrive", "arrive.relaxed.cta")
    found = run(LOOP.format(empty=EMPTY, full=FULL, release=release))
    assert modes(found) == [
        "asynchronous write asynchronous write",
        "asynchronous write read",
    ]


# ---- wgmma ----

WGMMA = """.reg .f32 %f<5>; mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1;
mov.f32 %f4, %f1; shr.u32 %r14, %r9, 4; cvt.u64.u32 %rd7, %r14; or.b64 %rd7, %rd7, 0x1000080000;
add.u64 %rd8, %rd7, 64; mul.lo.u32 %r3, %r1, 16; add.u32 %r3, %r3, %r9;
BEFORE wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd7, %rd8, 1, 1, 1, 0, 0;
BEHIND"""
FILL = "st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};"
GROUP = "wgmma.commit_group.sync.aligned;"
GROUP_WAIT = "wgmma.wait_group.sync.aligned {};"
FIRST_WARP = "setp.lt.u32 %p5, %r1, 32;"
TWO_WARPS = "setp.ge.u32 %p6, %r1, 64; @%p6 bra others;"
PRODUCTS = {
    "a fence": ((f"{FILL} {FENCE} {BARRIER}", ""), []),
    "a fence behind the barrier": ((f"{FILL} {BARRIER} {FENCE}", ""), []),
    "no fence": ((f"{FILL} {BARRIER}", ""), ["asynchronous read write"]),
    "no barrier": ((f"{FILL} {FENCE}", ""), ["asynchronous read write"]),
    "a barrier of two warps": (
        (
            f"""setp.ge.u32 %p5, %r1, 64; @%p5 bra others; {FILL} {FENCE} bar.sync 1, 64;
            others:""",
            "",
        ),
        ["asynchronous read write"],
    ),
    "a fence of one warp behind the barrier": (
        (f"{FILL} {BARRIER} setp.lt.u32 %p5, %r1, 32; @%p5 {FENCE}", ""),
        ["asynchronous read write"],
    ),
    "a wait": (("", f"{GROUP} {GROUP_WAIT.format(0)} {BARRIER} {FILL}"), []),
    "no wait": (("", f"{GROUP} {BARRIER} {FILL}"), ["asynchronous read write"]),
    "a wait for fewer groups": (
        ("", f"{GROUP} {GROUP_WAIT.format(1)} {BARRIER} {FILL}"),
        ["asynchronous read write"],
    ),
    "no group": (("", f"{GROUP_WAIT.format(0)} {BARRIER} {FILL}"), ["asynchronous read write"]),
    # A group of products is one of the whole warpgroup. It is complete when all four warps have
    # read their parts, so a warp that has waited for it may write to what the others have read.
    "a wait and no barrier": (("", f"{GROUP} {GROUP_WAIT.format(0)} {FILL}"), []),
    "one warp waits, and a barrier": (
        ("", f"{GROUP} {FIRST_WARP} @%p5 {GROUP_WAIT.format(0)} {BARRIER} {FILL}"),
        [],
    ),
    "one warp waits and tells another": (
        (
            "",
            f"""{GROUP} {FIRST_WARP} @%p5 {GROUP_WAIT.format(0)} {TWO_WARPS}
            bar.sync 1, 64; {FILL} others:""",
        ),
        [],
    ),
    "a warp has not waited": (
        ("", f"{GROUP} {FIRST_WARP} @%p5 {GROUP_WAIT.format(0)} {FILL}"),
        ["asynchronous read write"],
    ),
    "another warpgroup has waited": (
        (
            "",
            f"""{GROUP} setp.lt.u32 %p5, %r1, 128; @%p5 {GROUP_WAIT.format(0)}
            {BARRIER} @%p5 {FILL}""",
        ),
        ["asynchronous read write"],
    ),
    "a read without a wait": (("", "ld.shared.u32 %r15, [%r3];"), []),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_wgmma(cuda_device, case):
    (before, behind), expected = PRODUCTS[case]
    body = WGMMA.replace("BEFORE", before).replace("BEHIND", behind)
    threads = 256 if "another warpgroup" in case else 128
    assert modes(run(body, threads=threads, target="sm_90a")) == expected


def test_a_write_that_some_warps_of_a_product_know(cuda_device):
    """All four warps have to know it: a fence alone is not enough."""
    before, behind = PRODUCTS["a barrier of two warps"][0]
    body = WGMMA.replace("BEFORE", before).replace("BEHIND", behind)
    (hazard,) = run(body, threads=128, target="sm_90a")
    assert "Nothing orders them: add fence.proxy.async" in hazard.text
    assert " and __syncthreads() between " in hazard.text


# ---- reads that may miss writes ----

NC = "ld.global.nc.u32 %r5, [%rd3];"
UNSEEN = {
    "nothing is written": (NC, []),
    "another word is written": (f"st.global.u32 [%rd3+1024], 1; {NC}", []),
    "the thread itself has written": (f"st.global.u32 [%rd3], 1; {NC}", ["read write"]),
    "a barrier does not help": (
        f"st.global.u32 [%rd4], 1; {BARRIER} {NC}",
        ["read write"],
    ),
    "another read": (f"st.global.u32 [%rd3], 1; {GLOBAL_LOAD}", []),
    "a write behind the read": (f"{NC} st.global.u32 [%rd3], 1;", []),
    "a write of another thread behind the read": (
        f"{NC} st.global.u32 [%rd4], 1;",
        ["read write"],
    ),
    "a byte": ("st.global.u8 [%rd3+1], 1; ld.global.nc.u8 %r5, [%rd3+2];", []),
    "the same byte": ("st.global.u8 [%rd3+1], 1; ld.global.nc.u8 %r5, [%rd3+1];", ["read write"]),
    "atomics": (f"red.global.add.u32 [%rd3], 1; {NC}", ["atomic read"]),
}


@pytest.mark.parametrize("case", UNSEEN)
def test_ld_global_nc(cuda_device, case):
    body, expected = UNSEEN[case]
    found = run(body)
    assert modes(found) == expected
    if "itself" in case or "barrier" in case:
        assert "may miss what the same launch has written" in found[0].text


BEFORE = " before copy.cu:14"
FENCED = f"add fence.proxy.async (cuda::ptx::fence_proxy_async){BEFORE}"
REMEDIES = {
    "a bulk store": (f"{FIRST} {STORE}", f"{BARRIER} {DONE}", FENCED),
    "no order": (
        f"{FIRST} @%p6 {STORE}",
        DONE,
        "add fence.proxy.async (cuda::ptx::fence_proxy_async) and __syncthreads() between "
        "copy.cu:12",
    ),
    "the source": (
        f"{FIRST} {OUT} {COMMIT}",
        f"{BARRIER} @%p6 {STORE}",
        "wait for the copy: cp.async.bulk.wait_group.read "
        f"(cuda::ptx::cp_async_bulk_wait_group_read) and __syncthreads(),{BEFORE}",
    ),
    "the target": (
        f"{FIRST} {OUT} {COMMIT}",
        f"@!%p6 {GLOBAL_LOAD}",
        "wait for the copy: cp.async.bulk.wait_group "
        f"(cuda::ptx::cp_async_bulk_wait_group){BEFORE}",
    ),
    "a bulk load": (
        f"{INIT} {EXPECT} {IN}",
        LOAD,
        "wait for the copy: mbarrier.try_wait (cuda::barrier wait) for the phase of its mbarrier"
        f"{BEFORE}",
    ),
    "a read by ld.global.nc": (
        "st.global.u32 [%rd3], 1;",
        NC,
        "use an ordinary read, or launch the two as two kernels",
    ),
}


@pytest.mark.parametrize("case", REMEDIES)
def test_remedies(cuda_device, case):
    first, second, remedy = REMEDIES[case]
    (hazard,) = run(f".loc 1 12 0\n{first}\n.loc 1 14 0\n{second}", before='.file 1 "copy.cu"')
    assert remedy in hazard.text
    assert {hazard.first.line, hazard.second.line} == {12, 14}


def test_the_remedy_for_a_product(cuda_device):
    body = WGMMA.replace("BEFORE", "").replace("BEHIND", f"{GROUP} {BARRIER} {FILL}")
    (hazard,) = run(body, threads=128, target="sm_90a")
    assert "wait for the product: wgmma.wait_group" in hazard.text
