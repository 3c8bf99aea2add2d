"""checks=race: ldmatrix, stmatrix and wmma, which the lanes of a warp do together."""

import pytest

from .programs import modes, run

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

# %r5 is the address of the row that a lane names: 16 bytes of `tile`.
ROW = "and.b32 %r5, %r1, 31; mad.lo.u32 %r5, %r5, 16, %r9;"
FILL = "st.shared.v4.u32 [%r5], {%r1, %r1, %r1, %r1};"
TAKE = "ld.shared.v4.u32 {%r11, %r12, %r13, %r14}, [%r5];"
LOAD = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r5];"
LOAD_ONE = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r11}, [%r5];"
STORE = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r1, %r1, %r1, %r1};"
TELL = "setp.eq.u32 %p1, %r1, 3; @%p1 red.release.cta.shared.add.u32 [%r9+1024], 1;"
MEET, BARRIER = "bar.warp.sync -1;", "bar.sync 0;"

A = "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {{%a0,%a1,%a2,%a3,%a4,%a5,%a6,%a7}}, [{0}];"
C = "wmma.load.c.sync.aligned.row.m16n16k16.{1}.f32 {{%c0,%c1,%c2,%c3,%c4,%c5,%c6,%c7}}, [{0}];"
D = "wmma.store.d.sync.aligned.row.m16n16k16.{1}.f32 [{0}], {{%c0,%c1,%c2,%c3,%c4,%c5,%c6,%c7}};"
LOAD_A, LOAD_C, STORE_D = A.format("%r9"), C.format("%r9", "shared"), D.format("%r9", "shared")

# The body, and the races of one warp.
WARP = {
    "ldmatrix": (f"{FILL} {MEET} {LOAD}", []),
    "ldmatrix without __syncwarp": (f"{FILL} {LOAD}", ["read write"]),
    "ldmatrix of one matrix": (f"{FILL} {LOAD_ONE}", ["read write"]),
    "ldmatrix of other rows": (f"st.shared.u32 [%r3+1024], %r1; {LOAD_ONE}", []),
    "ldmatrix does not read the rows of the last lanes": (
        f"setp.lt.u32 %p1, %r1, 8; @!%p1 {FILL} {LOAD_ONE}",
        [],
    ),
    "a write behind ldmatrix": (f"{LOAD} {FILL}", ["read write"]),
    "a write behind ldmatrix and __syncwarp": (f"{LOAD} {MEET} {FILL}", []),
    "stmatrix": (f"{STORE} {MEET} {TAKE}", []),
    "stmatrix without __syncwarp": (f"{STORE} {TAKE}", ["read write"]),
    "stmatrix before ldmatrix": (f"{STORE} {LOAD}", ["read write"]),
    "stmatrix, and ldmatrix behind __syncwarp": (f"{STORE} {MEET} {LOAD}", []),
    "stmatrix, and one lane has told others something": (f"{TELL} {STORE} {MEET} {TAKE}", []),
    "wmma.store, and one lane has told others something": (f"{TELL} {STORE_D} {MEET} {TAKE}", []),
    "stmatrix, one lane has told others something, and no __syncwarp": (
        f"{TELL} {STORE} {TAKE}",
        ["read write"],
    ),
    "two rows at the same place": (
        f"shr.u32 %r6, %r5, 5; shl.b32 %r5, %r6, 5; {STORE}",
        ["write write"],
    ),
    "two stmatrix": (f"{STORE} {STORE}", ["write write"]),
    "two stmatrix, and __syncwarp": (f"{STORE} {MEET} {STORE}", []),
    "wmma.load": (f"{FILL} {MEET} {LOAD_A}", []),
    "wmma.load without __syncwarp": (f"{FILL} {LOAD_A}", ["read write"]),
    "wmma.load of other rows": (f"st.shared.u32 [%r3+1024], %r1; {LOAD_A}", []),
    "a write behind wmma.load": (f"{LOAD_A} {FILL}", ["read write"]),
    "wmma.store": (f"{STORE_D} {MEET} {TAKE}", []),
    "wmma.store without __syncwarp": (f"{STORE_D} {TAKE}", ["read write"]),
    "wmma.store to what wmma.load.c has read": (f"{LOAD_C} {STORE_D} {STORE_D}", []),
    "wmma.store before wmma.load.a": (f"{STORE_D} {LOAD_A}", ["read write"]),
    "wmma.store before wmma.load.a, and __syncwarp": (f"{STORE_D} {MEET} {LOAD_A}", []),
}  # fmt: skip
BLOCK = {
    "ldmatrix": (f"{FILL} {BARRIER} {LOAD}", ["write write"]),
    "ldmatrix of what another warp has written": (
        f"setp.ge.u32 %p1, %r1, 32; @!%p1 {FILL} {BARRIER} {LOAD}",
        [],
    ),
    "no barrier": (
        f"setp.ge.u32 %p1, %r1, 32; @!%p1 {FILL} {LOAD}",
        ["read write"],
    ),
    "a warp that has told others something stores, and only arrives": (
        f"setp.ge.u32 %p2, %r1, 32; @%p2 bra over; {TELL} {STORE} bar.arrive 1, 64; bra done;"
        f"over: bar.sync 1, 64; {TAKE}",
        [],
    ),
    "wmma.load of what another warp has stored": (
        f"setp.ge.u32 %p1, %r1, 32; @%p1 bra over; {STORE_D} over: {BARRIER} {LOAD_A}",
        [],
    ),
    "wmma.load and no barrier": (
        f"setp.ge.u32 %p1, %r1, 32; @%p1 bra over; {STORE_D} over: {MEET} {LOAD_A}",
        ["read write"],
    ),
    "wmma.store by two warps": (STORE_D, ["write write"]),
    "wmma.load by two warps": (LOAD_C, []),
}
PARTS = ".reg .b32 %a<8>; .reg .f32 %c<8>;"
CLEAR = "".join(f"mov.f32 %c{i}, 0f00000000;" for i in range(8))


@pytest.mark.parametrize("case", WARP)
def test_in_a_warp(cuda_device, case):
    body, expected = WARP[case]
    found = run(PARTS + CLEAR + ROW + body, threads=32)
    assert modes(found) == expected
    assert all(hazard.first.thread != hazard.second.thread for hazard in found)


@pytest.mark.parametrize("case", BLOCK)
def test_in_a_block(cuda_device, case):
    body, expected = BLOCK[case]
    found = [hazard for hazard in run(PARTS + CLEAR + ROW + body) if not hazard.benign]
    assert modes(found) == expected


@pytest.mark.parametrize(("blocks", "expected"), [(1, []), (2, ["read write", "write write"])])
def test_an_update_in_global_memory(cuda_device, blocks, expected):
    body = C.format("%rd1", "global") + "\n" + D.format("%rd1", "global")
    assert modes(run(PARTS + CLEAR + body, threads=32, blocks=blocks)) == expected
