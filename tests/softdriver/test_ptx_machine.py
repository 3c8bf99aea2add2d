"""The PTX interpreter: diverging lanes, barriers, shuffles, calls, faults, recorded accesses.

The interpreter is built alone, with the address sanitizer. The program ptx_run runs one kernel.
"""

import subprocess

import pytest
from limits import PATIENCE

from .sanitized import ADDRESS, PTX_RUN, THREAD, Build

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<8>;\n.reg .b16 %h<8>;"
)
# Sets %rd1 to the address of the array, %r1 to the index of the thread in its block, and %rd2 to
# the address of the thread's word.
START = """ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd2, %rd1, %rd2;
"""
pytestmark = pytest.mark.slow


LINES = ("words", "reads", "writes", "atomics", "fault", "problem", "executed")


class Outcome:
    def __init__(self, text: str) -> None:
        self.text = text
        lines = dict.fromkeys(LINES, "")
        for line in text.splitlines():
            name, _, rest = line.partition(" ")
            lines[name] = rest
        self.words = [int(word) for word in lines["words"].split()]
        self.reads, self.writes = lines["reads"].split(), lines["writes"].split()
        self.atomics = lines["atomics"].split()
        self.fault, self.problem = lines["fault"], lines["problem"]
        self.executed = int(lines["executed"] or 0)


@pytest.fixture(scope="module")
def address_program():
    return Build("address", ADDRESS).ptx_program(PTX_RUN)


@pytest.fixture(scope="module")
def thread_program():
    return Build("thread", THREAD).ptx_program(PTX_RUN)


@pytest.fixture(params=["address_program"])
def program(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def run(program, tmp_path):
    def run(body: str, blocks=1, threads=32, words=64, before="", **options) -> Outcome:
        text = f"{HEAD}{before}.visible .entry k(.param .u64 out)\n{{{REGISTERS}{START}{body}}}\n"
        (tmp_path / "k.ptx").write_text(text, encoding="utf-8")
        further = {"shared": 0, "slice": 100000, "seed": 1, "budget": 10_000_000, "helpers": 1}
        further |= options
        command = [program, tmp_path / "k.ptx", "k", blocks, threads, words, *further.values()]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode in (0, 1), done.stderr[-4000:]
        return Outcome(done.stdout)

    return run


LOCK = """
again: atom.global.cas.b32 %r2, [%rd1], 0, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra again;
ld.volatile.global.u32 %r3, [%rd1+4]; add.u32 %r3, %r3, 1; st.volatile.global.u32 [%rd1+4], %r3;
atom.global.exch.b32 %r4, [%rd1], 0; ret;
"""


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("slice", [7, 100000])
def test_lanes_that_spin_let_the_holder_of_a_lock_go_on(run, seed, slice):
    assert run(LOCK, blocks=3, threads=80, seed=seed, slice=slice).words[:2] == [0, 240]


@pytest.mark.parametrize("seed", range(1, 4))
def test_blocks_that_wait_for_others(run, seed):
    body = """mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd1, %rd3;
    again: ld.acquire.gpu.global.u32 %r3, [%rd3]; setp.ne.u32 %p1, %r3, %r2; @%p1 bra again;
    add.u32 %r3, %r3, 1; st.release.gpu.global.u32 [%rd3+4], %r3; ret;"""
    outcome = run(body, blocks=40, threads=1, seed=seed)
    assert outcome.words[:41] == list(range(41)), outcome.text


def test_a_kernel_that_never_ends(run):
    outcome = run("again: bra again;", budget=5000)
    assert outcome.fault.startswith("702 kernel 'k' did not end within 5000")


def test_a_wait_for_an_mbarrier_that_never_ends(run):
    """A wait for an mbarrier never ends: one of two arrivals is missing. Several warps wait."""
    body = """setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [0], 2;
    @%p1 mbarrier.arrive.shared.b64 %rd3, [0]; bar.sync 0;
    again: mbarrier.try_wait.parity.shared.b64 %p2, [0], 0; @!%p2 bra again;"""
    outcome = run(body, threads=64, shared=8, budget=5000)
    assert outcome.fault.startswith("702 kernel 'k' did not end within 5000")


def test_what_copies_access(run):
    """Only the bytes that a copy reads are recorded as read."""
    body = """mul.lo.u32 %r2, %r1, 16; add.u64 %rd3, %rd1, 64; mov.u32 %r3, 5;
    cp.async.ca.shared.global [%r2], [%rd3], 16, %r3; cp.async.wait_all;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [0], 32;"""
    outcome = run(body, threads=2, shared=32)
    assert (outcome.reads, outcome.writes, outcome.atomics) == (["64+5"], ["0+32"], [])


def test_barriers_count_predicates(run):
    body = """setp.lt.u32 %p1, %r1, 21; barrier.red.popc.u32 %r2, 0, %p1;
    bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, !%p1;
    selp.u32 %r3, 100, 0, %p2; selp.u32 %r4, 1000, 0, %p3;
    add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; st.global.u32 [%rd2], %r2; ret;"""
    assert run(body, threads=48).words[:48] == [1021] * 48


def test_threads_that_ended_do_not_hold_a_barrier_up(run):
    body = """setp.lt.u32 %p1, %r1, 40; @%p1 exit; bar.sync 0; st.global.u32 [%rd2], 1; ret;"""
    assert run(body, threads=64).words == [0] * 40 + [1] * 24


def test_threads_that_wait_for_each_other_at_different_barriers(run):
    body = """setp.lt.u32 %p1, %r1, 32; @%p1 bra other; bar.sync 1; ret; other: bar.sync 2; ret;"""
    outcome = run(body, threads=64)
    assert outcome.fault.startswith("702 kernel 'k' hangs: every thread of block (0, 0, 0)")


def test_lanes_meet_again(run):
    body = """and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra even;
    mov.u32 %r3, 5; bra join; even: mov.u32 %r3, 7;
    join: activemask.b32 %r4; st.global.u32 [%rd2], %r4; ret;"""
    assert run(body).words[:32] == [0xFFFFFFFF] * 32


@pytest.mark.parametrize(
    "mode, b, c, expected",
    [
        ("up", 1, 0, lambda i: max(i - 1, 0)),
        ("down", 3, 31, lambda i: i + 3 if i + 3 < 32 else i),
        ("bfly", 5, 31, lambda i: i ^ 5),
        ("idx", 9, 31, lambda i: 9),
        ("idx", 3, 0x181F, lambda i: i // 8 * 8 + 3),
        ("up", 2, 0x1800, lambda i: i - 2 if i % 8 >= 2 else i),
        ("down", 2, 0x181F, lambda i: i + 2 if i % 8 < 6 else i),
    ],
)
def test_shuffles(run, mode, b, c, expected):
    body = f"""shfl.sync.{mode}.b32 %r2|%p1, %r1, {b}, {c}, -1;
    st.global.u32 [%rd2], %r2; ret;"""
    assert run(body).words[:32] == [expected(lane) for lane in range(32)]


def test_lanes_of_a_mask_come_to_one_vote(run):
    """Lanes that arrive in two groups vote together."""
    body = """setp.lt.u32 %p1, %r1, 9; @%p1 bra first; add.u32 %r1, %r1, 0;
    first: vote.sync.ballot.b32 %r2, %p1, -1; st.global.u32 [%rd2], %r2; ret;"""
    assert run(body).words[:32] == [0x1FF] * 32


def test_recursion(run):
    before = """.func (.param .b32 r) sum(.param .b32 n) {
    .reg .pred %p<2>; .reg .b32 %r<5>;
    ld.param.u32 %r1, [n]; setp.eq.u32 %p1, %r1, 0; @%p1 bra zero;
    sub.u32 %r2, %r1, 1;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), sum, (a);
      ld.param.b32 %r3, [b]; }
    add.u32 %r4, %r3, %r1; st.param.b32 [r], %r4; ret;
    zero: st.param.b32 [r], 0; ret; }
    """
    body = """{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), sum, (a);
    ld.param.b32 %r2, [b]; } st.global.u32 [%rd2], %r2; ret;"""
    assert run(body, before=before).words[:32] == [i * (i + 1) // 2 for i in range(32)]


@pytest.mark.parametrize(
    "body, status, text",
    [
        (
            "st.global.u32 [%rd2+128], %r1;",
            700,
            "write of 4 bytes at 0x700000000084",
        ),
        ("ld.global.u32 %r2, [%rd2+2];", 716, "ld.global.u32: read of 4 bytes at 0x700000000002"),
        ("st.shared.u32 [%r1], %r1;", 716, "st.shared.u32: write of 4 bytes at 0x1 in shared"),
        ("ld.shared.u32 %r2, [96];", 700, "in shared memory, which has 96 bytes"),
        ("trap;", 719, "trap: the kernel gave up, thread (0, 0, 0) of block (0, 0, 0)"),
        ("red.global.add.v2.f32 [%rd1+4], {%f1, %f1};", 716, "update of 8 bytes at 0x700000000004"),
        ("red.global.add.v4.f32 [%rd1+128], {%f1, %f1, %f1, %f1};", 700, "update of 16 bytes"),
        ("alloca.u64 %rd3, 600000;", 700, "the stack overflows: 600000 bytes are wanted"),
        ("stacksave.u64 %rd3; add.u64 %rd3, %rd3, 8; stackrestore.u64 %rd3;", 700, "a position"),
        ("mbarrier.arrive.shared.b64 %rd3, [0];", 715, "there is no mbarrier at this address"),
        ("mbarrier.init.shared.b64 [4], 1;", 716, "update of 8 bytes at 0x4"),
        ("mbarrier.init.b64 [%rd1], 1;", 700, "the address does not point to shared memory"),
        ("mbarrier.init.shared.b64 [0], 0;", 715, "0 arrivals; they must be 1 to 2^20 - 1"),
        (
            "mbarrier.init.shared.b64 [0], 3; mbarrier.arrive.shared.b64 %rd3, [0], 2;",
            715,
            "2 arrivals, and this phase of the mbarrier still waits for 1, thread (1, 0, 0)",
        ),
        (
            "mbarrier.init.shared.b64 [0], 1; mbarrier.arrive.noComplete.shared.b64 %rd3, [0], 1;",
            715,
            "1 arrivals with .noComplete would end the phase",
        ),
        (
            "mbarrier.init.shared.b64 [0], 1; mbarrier.expect_tx.shared.b64 [0], 0x80000;",
            715,
            "the mbarrier would wait for 1048576 bytes, and it counts at most 1048575",
        ),
        (
            "mbarrier.init.shared.b64 [0], 1; mbarrier.inval.shared.b64 [0];"
            "mbarrier.expect_tx.shared.b64 [0], 0x80000;",
            715,
            "there is no mbarrier at this address: mbarrier.init must come first",
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];",
            716,
            "read of 16 bytes at 0x1 in shared memory, which is not aligned, thread (1, 0, 0)",
        ),
        (
            "mul.lo.u32 %r2, %r1, 16; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r2];",
            700,
            "read of 16 bytes at 0x60 in shared memory, which has 96 bytes, thread (6, 0, 0)",
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x1.b16 {%r2}, [%rd1];",
            700,
            "the address does not point to shared memory",
        ),
        (
            "setp.lt.u32 %p1, %r1, 5; @%p1 exit; movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;",
            715,
            "all 32 lanes of a warp must execute this instruction together",
        ),
        (
            "wmma.store.d.sync.aligned.row.m8n8k32.global.s32 [%rd1], {%r1, %r2};",
            700,
            "write of 4 bytes at 0x700000000084",
        ),
        ("cp.async.ca.shared.global [%r1], [%rd1], 4;", 716, "write of 4 bytes at 0x1 in shared"),
        ("cp.async.ca.shared.global [0], [%rd1+132], 4;", 700, "read of 4 bytes at 0x700000000084"),
        ("cp.async.ca.shared.global [0], [%rd1+2], 8, 3;", 716, "read of 3 bytes at 0x70000000000"),
        ("cp.async.ca.shared.global [0], [%rd1], 4, 5;", 715, "5 bytes are to be read, and only 4"),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [0], 24;",
            715,
            "24 bytes; they must be a multiple of 16",
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [0], 112;",
            700,
            "read of 112 bytes at 0x0 in shared memory, which has 96 bytes",
        ),
    ],
)
def test_faults(run, body, status, text):
    outcome = run(body, words=33, shared=96)
    assert outcome.fault.startswith(f"{status} kernel 'k', PTX line "), outcome.text
    assert text in outcome.fault


def test_what_was_accessed(run):
    body = """ld.global.u8 %r2, [%rd2+1]; st.global.u16 [%rd1+130], %r1;
    red.global.add.u32 [%rd1+140], 1; ret;"""
    outcome = run(body, threads=3)
    assert outcome.reads == ["1+1", "5+1", "9+1"]
    assert (outcome.writes, outcome.atomics) == (["130+2"], ["140+4"])


KNOWN = """.shared .b32 many[9]; .const .b32 fixed;
.extern .func vprintf(.param .b64 a, .param .b64 b);
.func (.reg .b32 r) pair(.reg .v2 .b64 a) { mov.b32 r, 0; }
"""


@pytest.mark.parametrize(
    "body, problem",
    [
        ("tex.2d.v4.f32.f32 {%r1,%r2,%r3,%r4}, [out, {%f1,%f1}];", "a .texref or a handle in a"),
        ("tex.2d.v4.f32.f32 {%r1,%r2,%r3,%r4}, [%rd1, %rd1, {%f1,%f1}];", "samplers that are"),
        ("tex.2d.v4.f32.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%f1}];", "1 coordinates where 2 are needed"),
        ("tex.2d.v4.f16.f32 {%h1,%h1,%h1,%h1}, [%rd1, {%f1,%f1}];", "not supported with this type"),
        ("tex.2d.v4.f32.u32 {%r1,%r2,%r3,%r4}, [%rd1, {%r1,%r1}];", "coordinates of this type"),
        ("tex.2d.f32.f32 %f1, [%rd1, {%f1,%f1}];", "only results of four registers"),
        ("tex.2dms.v4.f32.s32 {%r1,%r2,%r3,%r4}, [%rd1, {%r1,%r1}];", "this geometry is not"),
        (
            "tex.2d.v4.f32.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%f1,%f1}], {%r1,%r1};",
            "offsets and comparisons of depths are not supported",
        ),
        (
            "tex.grad.2d.v4.f32.s32 {%r1,%r2,%r3,%r4}, [%rd1, {%r1,%r1}], {%f1,%f1}, {%f1,%f1};",
            "coordinates of this type",
        ),
        (
            "tex.grad.2d.v4.f32.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%f1,%f1}], {%f1}, {%f1,%f1};",
            "1 coordinates where 2 are needed",
        ),
        (
            "tex.grad.2d.v4.f32.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%f1,%f1}], {%f1,%f1};",
            "3 operands where 4 are needed",
        ),
        ("tld4.a.a2d.v4.f32.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%r1,%f1,%f1,%f1}];", "only .2d is"),
        ("tld4.2d.v4.f32.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%f1,%f1}];", "the name of a channel"),
        ("txq.channel_order.b32 %r1, [%rd1];", "only the width, height and depth"),
        ("txq.level.array_size.b32 %r1, [%rd1], 1;", "a level has only"),
        ("sured.b.add.2d.u32 [%rd1, {%r1,%r1}], %r1;", ".trap, .clamp or .zero"),
        ("suq.num_mipmap_levels.b32 %r1, [%rd1];", "this query is not supported"),
        ("suld.p.2d.v4.b32.trap {%r1,%r2,%r3,%r4}, [%rd1, {%r1,%r1}];", "only suld.b is supported"),
        ("suld.b.cube.b32.trap %r1, [%rd1, {%r1,%r1,%r1,%r1}];", "this geometry is not supported"),
        ("sust.b.1d.v4.b64.trap [%rd1, %r1], {%rd1,%rd1,%rd1,%rd1};", "more than 16 bytes"),
        ("sust.b.1d.v2.b32.trap [%rd1, %r1], %r1;", "the vector does not have as many items"),
        ("sured.add.1d.b32.trap [%rd1, %r1], %r1;", ".b or .p is missing"),
        ("sured.p.add.1d.u32.trap [%rd1, %r1], %r1;", "not supported with this type"),
        ("sured.p.add.1d.b64.trap [%rd1, %r1], %rd1;", "not supported with this type"),
        ("sured.p.min.1d.b64.trap [%rd1, %r1], %rd1;", "needs PTX 8.1"),
        ("sured.b.and.1d.u32.trap [%rd1, %r1], %r1;", "not supported with this type"),
        ("istypep.texref %p1, %rd1;", "not supported by the software driver"),
        ("add.u33 %r1, %r1, %r1;", "add.u33: a type is missing"),
        ("add.rn.u32 %r1, %r1, %r1;", "add.rn.u32: '.rn' is not supported here"),
        ("add.u64 %rd1, %rd1, %r1;", "add.u64: register %r1 has not the width of the type"),
        ("add.u32 %r1, %r1;", "add.u32: 2 operands where 3 are needed"),
        ("mad.lo.cc.u16 %h1, %h1, %h1, %h1;", "mad.lo.cc.u16: not supported with this type"),
        ("atom.shared.add.u32 %r1, many[1], 1;", "an address in brackets is needed"),
        ("ld.global.u32 %r1, [many];", "'many' is in .shared, so the instruction needs this state"),
        ("ld.u32 %r1, [fixed];", "'fixed' is in .const, so the instruction needs this state"),
        ("atom.global.add.u32 %r1, [many], 1;", "'many' is in .shared, so the instruction needs"),
        ("mov.v2.b32 {%r1, %r2}, %r3;", "both operands must be vectors of as many items as the"),
        ("mov.v4.b32 {%r1, %r2}, {%r3, %r4};", "both operands must be vectors of as many items"),
        ("mov.v4.b64 {_, _, _, _}, {0, 0, 0, 0};", "mov.v4.b64: not supported with this type"),
        ("mov.v2.pred {%p1, %p2}, {%p2, %p1};", "mov.v2.pred: not supported with this type"),
        ("ld.global.v8.u16 {_, _, _, _, _, _, _, %h1}, [%rd1];", "not supported with this type"),
        ("mov.u32 %r1+1, %r2;", "mov.u32: a register is needed to hold the result"),
        ("ld.u32 %r1+1, [%rd1];", "ld.u32: a register is needed to hold the result"),
        ("add.f32 %f1, %f2+1, %f3;", "add.f32: a number can be added to integer registers only"),
        ("createpolicy.fractional.L1::evict_last.b64 %rd1;", "'.L1::evict_last' is not supported"),
        ("createpolicy.range.L2::evict_last.b64 %rd1, [%rd1], 8;", "3 operands where 4 are needed"),
        ("mov.u32 %r1, %clock64;", "%clock64 does not fit the type"),
        ("cvt.pack.u16.s32 %r1, %r2, %r3;", "cvt.pack.u16.s32: .sat is missing"),
        ("cvt.pack.sat.u16.u32 %r1, %r2, %r3;", "cvt.pack.sat.u16.u32: not supported with this"),
        ("cvt.pack.sat.u8.s32 %r1, %r2, %r3;", "cvt.pack.sat.u8.s32: not supported with this"),
        ("cvt.pack.sat.s8.s32.b32 %r1, %r2, %r3;", "3 operands where 4 are needed"),
        ("fma.f32x2 %rd1, %rd1, %rd1, %rd1;", "fma.f32x2: .rn, .rz, .rm or .rp is missing"),
        ("add.sat.f32x2 %rd1, %rd1, %rd1;", "add.sat.f32x2: '.sat' is not supported here"),
        ("add.f32x2 %f1, %f2, %f3;", "add.f32x2: register %f2 has not the width of the type"),
        ("min.f32x2 %rd1, %rd1, %rd1;", "min.f32x2: a type is missing"),
        ("redux.min.s32 %r1, %r2, -1;", "redux.min.s32: .sync is missing"),
        ("redux.sync.add.f32 %f1, %f2, -1;", "redux.sync.add.f32: not supported with this type"),
        ("redux.sync.min.abs.s32 %r1, %r2, -1;", "'.abs' is not supported here"),
        ("call (%r1), pair, (%rd1);", "a parameter of this size must be passed in memory"),
        ("call vprintf, (%r1, %rd1);", "register %r1 has not the width of the type"),
        ("frobnicate %r1;", "frobnicate: not supported by the software driver"),
        ("red.shared.add.v2.f32 [0], {%f1, %f1};", "red.shared.add.v2.f32: vectors must be in"),
        ("red.global.add.v8.f32 [%rd1], {%f1};", "red.global.add.v8.f32: the vector does not"),
        ("red.global.add.noftz.f32 [%rd1], %f1;", "red.global.add.noftz.f32: .noftz is for 16"),
        ("min.xorsign.abs.f32 %f1, %f1, %f1, %f1;", "min.xorsign.abs.f32: '.xorsign' is not"),
        ("min.f64 %rd1, %rd1, %rd1, %rd1;", "min.f64: not supported with this type"),
        ("alloca.u64 %rd1, 8, 12;", "alloca.u64: the alignment must be a power of 2"),
        ("cp.async.cg.shared.global [0], [%rd1], 8;", "cp.async.cg.shared.global: this number"),
        (
            "cp.async.bulk.tensor.1d.shared::cta.global.tile [0], [%rd1, {%r1}], [0];",
            "not supported by the software driver",
        ),
        (
            "cp.reduce.async.bulk.shared::cluster.shared::cta.bulk_group.add.u32 [0], [0], 16;",
            "only .global.shared::cta.bulk_group is supported",
        ),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [0];", "only .sync.aligned"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [0];", "1 registers where 2 are needed"),
        (
            "mma.sync.aligned.m8n8k16.row.col.s32.s8.s4.s32 {%r1, %r2}, %r1, %r1, {%r1, %r2};",
            "these types are not supported with this shape",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f16 {%f1,%f1,%f1,%f1}, {%r1,%r1},"
            " {%r1}, {%r1};",
            "1 registers where 2 are needed",
        ),
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f1,%f1,%f1}, {%r1,%r1},"
            " {%r1,%r1}, {%f1,%f1,%f1,%f1}, %r1, 0;",
            "6 operands where 4 are needed",
        ),
        ("wmma.load.a.sync.aligned.col.m8n8k32.s4 {%r1}, [%rd1];", "contiguous along"),
        ("wmma.load.a.sync.aligned.row.m8n8k32.f16 {%r1}, [%rd1];", "not supported with this type"),
        ("vadd.u32.u32.u32 %r1.b4, %r1, %r1, %r1;", "'.b4' is no part of a register"),
        ("vadd.u32.u32.u32.add %r1.b0, %r1, %r1, %r1;", "cannot receive the result of two"),
        ("vadd2.u32.u32.u32 %r1.h01, %r1, %r1, %r1;", "'.h01' does not select parts of a"),
        ("vadd4.u32.u32.u32 %r1, %r1.b3218, %r1, %r1;", "'.b3218' does not select parts of two"),
        ("vadd2.u32.u32.u32.sat.add %r1, %r1, %r1, %r1;", "'.sat' is not supported here"),
        ("vmad.u32.u32.u32 %r1, -%r1, %r1, %r1;", "syntax error near '%r1'"),
        ("add.u32 %r1.b0, %r1, %r1;", "parts of registers are allowed in video instructions only"),
        ("cvt.rn.e4m3x2.f32 %h1, %f1, %f1;", ".satfinite is missing"),
        ("cvt.rn.satfinite.e2m1x2.f32 %h1, %f1, %f1;", "a type is missing"),
        ("mbarrier.arrive.shared.b64 [0];", "mbarrier.arrive.shared.b64: 1 operands where 2"),
        ("mbarrier.try_wait.acquire.gpu.shared.b64 %p1, [0], %rd1;", "'.gpu' is not supported"),
        ("fence.proxy.tensormap::generic.gpu;", ".acquire or .release is missing"),
        ("fence.proxy.tensormap::generic.acquire.gpu;", "0 operands where 2 are needed"),
    ],
)
def test_what_is_not_known_is_refused(run, body, problem):
    outcome = run(body, before=KNOWN)
    assert problem in outcome.problem
    assert not outcome.words


both_sanitizers = pytest.mark.parametrize(
    "program", ["address_program", "thread_program"], indirect=True
)
# Blocks that run for different times: block n loops n + 1 times through shared memory. Each of
# its threads then stores n + 1, and adds 1 to a common counter.
INDEPENDENT = """mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 64, %r1;
mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd1, %rd2; mul.lo.u32 %r4, %r1, 4; mov.u32 %r5, 0;
again: st.shared.u32 [%r4], %r5; bar.sync 0; xor.b32 %r6, %r4, 4; ld.shared.u32 %r7, [%r6];
bar.sync 0; add.u32 %r5, %r7, 1; setp.le.u32 %p1, %r5, %r2; @%p1 bra again;
st.global.u32 [%rd2], %r5; red.global.add.u32 [%rd1+25600], 1;
atom.global.max.u32 %r8, [%rd1+25604], %r2; ret;"""
SUMS = [block + 1 for block in range(100) for _ in range(64)]
SHAPE = {"blocks": 100, "threads": 64, "words": 6402, "shared": 256}


@both_sanitizers
@pytest.mark.parametrize("helpers", [1, 2, 5, 64])
@pytest.mark.parametrize("slice", [100, 100000])
def test_threads_run_the_blocks_of_a_launch(run, helpers, slice):
    outcome = run(INDEPENDENT, **SHAPE, helpers=helpers, slice=slice)
    assert outcome.words == [*SUMS, 6400, 99], outcome.text
    assert (outcome.writes, outcome.atomics) == (["0+25600"], ["25600+8"])
    alone = run(INDEPENDENT, **SHAPE)
    assert outcome.executed == alone.executed


@pytest.mark.parametrize("helpers", [1, 4])
def test_the_limit_of_instructions_is_for_all_threads(run, helpers):
    options = {**SHAPE, "helpers": helpers}
    needed = run(INDEPENDENT, **options).executed
    assert not run(INDEPENDENT, **options, budget=needed + 1, slice=64).fault
    outcome = run(INDEPENDENT, **options, budget=needed // 2, slice=64)
    assert outcome.fault.startswith("702 kernel 'k' did not end within")


@both_sanitizers
def test_several_threads_report_one_fault_the_same_each_time(run):
    """With several host threads, the same one of many faults is reported each time.

    Every block faults, each at another address.
    """
    body = """mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd1, %rd2;
    mov.u32 %r4, 0; work: add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 3000; @%p1 bra work;
    st.global.u32 [%rd2+4096], %r2; ret;"""
    faults = {run(body, blocks=40, threads=1, helpers=4, seed=9).fault for _ in range(5)}
    assert len(faults) == 1
    assert faults.pop().startswith("700 kernel 'k', PTX line")


# Block n counts itself in word n, and stores in word 8000 + n.
COUNTED = """mov.u32 %r2, %ctaid.x; mad.lo.u32 %r2, %ctaid.y, %nctaid.x, %r2;
mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd1, %rd3; red.global.add.u32 [%rd3], 1;
st.global.u32 [%rd3+32000], %r2; ret;"""


@both_sanitizers
@pytest.mark.parametrize("helpers", [1, 3])
@pytest.mark.parametrize("blocks", [511, 512, 513, 4095, 4097, 7777])
def test_each_block_of_a_large_grid_runs_once(run, blocks, helpers):
    """Large grids start neighbouring blocks one after the other."""
    for seed in (1, 2):  # forwards and backwards
        found = run(COUNTED, blocks=blocks, threads=1, words=16000, helpers=helpers, seed=seed)
        assert found.words[:8000] == [1] * blocks + [0] * (8000 - blocks)
        assert found.words[8000 : 8000 + blocks] == list(range(blocks))
        assert (found.atomics, found.writes) == ([f"0+{4 * blocks}"], [f"32000+{4 * blocks}"])


# What 32 threads read, each 4 bytes from the address in %rd3, as the ranges that are recorded.
# Accesses of whole words are recorded in pages of 64 KiB.
FAR = "add.u64 %rd3, %rd1, 131072; and.b64 %rd3, %rd3, -65536; sub.u64 %rd4, %rd3, %rd1;"
READ = {
    "one after the other": ("mul.lo.u32 %r2, %r1, 4;", range(0, 128, 4)),
    "from a little before the page": ("mad.lo.s32 %r2, %r1, 4, -60;", range(-60, 68, 4)),
    "two rows": (
        """shr.u32 %r2, %r1, 4; mul.lo.u32 %r2, %r2, 1000; and.b32 %r3, %r1, 15;
        mad.lo.u32 %r2, %r3, 4, %r2; sub.u32 %r2, %r2, 32;""",
        [*range(-32, 32, 4), *range(968, 1032, 4)],
    ),
    "backwards": ("mul.lo.u32 %r2, %r1, -4;", range(-124, 4, 4)),
    "with gaps": ("mul.lo.u32 %r2, %r1, 12;", range(0, 384, 12)),
    "the same": ("mov.u32 %r2, 20;", [20]),
    "in pairs": ("shr.u32 %r2, %r1, 1; mul.lo.u32 %r2, %r2, 8;", range(0, 128, 8)),
    "by some lanes": (
        "mul.lo.u32 %r2, %r1, 4; setp.eq.u32 %p1, %r1, 7; @%p1 exit;",
        [*range(0, 28, 4), *range(32, 128, 4)],
    ),
}


@pytest.mark.parametrize("pattern", READ)
def test_what_is_read_in_a_pattern(run, pattern):
    code, offsets = READ[pattern]
    body = f"""{FAR} {code} cvt.s64.s32 %rd5, %r2; add.u64 %rd3, %rd3, %rd5;
    ld.global.u32 %r3, [%rd3]; st.global.u64 [%rd1], %rd4; ret;"""
    outcome = run(body, words=65536)
    page = outcome.words[0]
    read = [page + offset + byte for offset in offsets for byte in range(4)]
    ranges = []
    for at in sorted(set(read)):
        if ranges and sum(ranges[-1]) == at:
            ranges[-1][1] += 1
        else:
            ranges.append([at, 1])
    assert outcome.reads == [f"{begin}+{size}" for begin, size in ranges]


def test_what_is_read_in_words_and_in_bytes(run):
    body = """ld.global.u32 %r2, [%rd1]; ld.global.u8 %h1, [%rd1+4];
    ld.global.u8 %h1, [%rd1+6]; ld.global.u16 %h1, [%rd1+10]; ld.global.u32 %r2, [%rd1+12];
    ld.global.u8 %h1, [%rd1+13]; ld.global.u64 %rd3, [%rd1+16]; ld.global.u8 %h1, [%rd1+24];
    ld.global.u8 %h1, [%rd1+31]; ld.global.u32 %r2, [%rd1+32]; ret;"""
    assert run(body, threads=1).reads == ["0+5", "6+1", "10+15", "31+5"]


# Instructions whose results depend on the order of the blocks, such as taking the next number.
ORDERED = [
    "atom.global.add.u32 %r3, [%rd1], 1; st.global.u32 [%rd2+4], %r3;",
    "atom.add.u32 %r3, [%rd1], 1; st.global.u32 [%rd2+4], %r3;",
    "atom.global.exch.b32 %r3, [%rd1], %r2; st.global.u32 [%rd2+4], %r3;",
    "red.global.add.f32 [%rd1], %f1; membar.cta;",
    "red.global.inc.u32 [%rd1], 30;",
    "ld.volatile.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, 1; st.global.u32 [%rd1], %r3;",
    "ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, 1; st.volatile.u32 [%rd1], %r3;",
    "ld.relaxed.gpu.u32 %r3, [%rd1]; add.u32 %r3, %r3, 1; st.global.u32 [%rd1], %r3;",
    "ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, 1; membar.gl; st.global.u32 [%rd1], %r3;",
    "call next, (%rd1);",
]
NEXT = """.func next(.reg .u64 at) { .reg .u32 %r<3>;
atom.global.add.u32 %r1, [at], 1; st.global.u32 [at+4], %r1; ret; }
"""


@pytest.mark.parametrize("program", ["thread_program"], indirect=True)
@pytest.mark.parametrize("body", ORDERED)
def test_blocks_that_communicate_run_in_one_thread(run, body):
    """Blocks that communicate run in one host thread, so each seed has one result."""
    start = """mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd1, %rd2;
    cvt.rn.f32.u32 %f1, %r2; mul.f32 %f1, %f1, 0f3DCCCCCD; mov.u32 %r4, 0;
    work: add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 300; @%p1 bra work;"""
    options = {"blocks": 40, "threads": 1, "words": 64, "before": NEXT}
    alone = run(start + body, **options, slice=1000)
    together = run(start + body, **options, slice=1000, helpers=4)
    assert not alone.problem
    assert alone.text == together.text
