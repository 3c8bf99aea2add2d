"""checks=init: uses of values that depend on memory that nobody has written."""

import ctypes
import re

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing, toolkit

from .programs import run_in_a_graph

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

# %rd4 is the address of the thread's word in `fresh`, which nobody has written, and %r5 its value.
LOAD = "ld.global.u32 %r5, [%rd4];"
SHARED = "ld.shared.u32 %r5, [%r3];"
# Only the upper half of the warp loads the value: in the lanes in %p3.
UPPER_HALF = "mov.u32 %r10, %laneid; mov.u32 %r5, 1; setp.ge.u32 %p3, %r10, 16; @%p3 " + LOAD
COPIED, BRANCH, CONDITION = "copy", "condition of a branch", "condition of a write"
READ_AT, WRITE_AT, ATOMIC_AT = (f"address of {what}" for what in ("a read", "a write", "an atomic"))
UPDATED = None  # the update itself is the first access
PAGE = 1 << 12  # bytes for which the check keeps whether all are defined
OUT = "st.global.u32 [%rd3], {};"
TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .u32 zeros[64];
.func (.reg .b32 %result) increased(.reg .b32 %given) {{ add.u32 %result, %given, 1; ret; }}
.func (.param .b32 result) constant(.param .b32 given)
    {{ .reg .b32 %r<2>; mov.u32 %r1, 7; st.param.b32 [result], %r1; ret; }}
.func (.reg .b32 %result) kept(.reg .b32 %writes)
{{
    .reg .pred %p; .local .align 4 .b32 value;
    setp.ne.u32 %p, %writes, 0; @%p st.local.u32 [value], %writes; ld.local.u32 %result, [value];
    ret;
}}
.visible .entry k(.param .u64 out, .param .u64 fresh)
{{
    .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<8>;
    .shared .align 128 .b8 tile[2048]; .local .align 8 .b8 own[64];
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd5, [fresh]; mov.u32 %r1, %tid.x;
    mov.u32 %r9, tile; mad.lo.u32 %r3, %r1, 4, %r9;
    mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2; add.u64 %rd4, %rd5, %rd2;
    {body}
    done: ret;
}}
"""


def run(body, *, threads=64, checks="init", written=(), blocks=1):
    """Run a kernel, copy its output to the host, and return the hazards."""
    with testing.configured(f"checks={checks}"), cu.Stream() as stream:
        testing.forget_hazards()
        out = cu.DeviceBuffer.zeros(256, np.uint32, name="out")
        fresh = cu.DeviceBuffer(256, np.uint32, name="fresh")
        for start, stop in written:
            fresh.fill(1, stream=stream) if (start, stop) == (0, 256) else fresh[start:stop].fill(
                1, stream=stream
            )
        with cu.Module(TEXT.format(body=body)) as module:
            module["k"].launch(blocks, threads, out, fresh, stream=stream)
            stream.synchronize()
            out.to_numpy(stream=stream)
        return testing.hazards()


def uses(hazards):
    assert all(hazard.kind == "uninitialized" for hazard in hazards)
    return [hazard.second and hazard.second.mode for hazard in hazards]


CASES = {
    "a load": (LOAD, []),
    "a load, stored": (LOAD + OUT.format("%r5"), [COPIED]),
    "arithmetic": (LOAD + "mad.lo.u32 %r6, %r5, 3, 1;" + OUT.format("%r6"), [COPIED]),
    "floats": (
        "ld.global.f32 %f1, [%rd4]; add.f32 %f2, %f1, %f1; st.global.f32 [%rd3], %f2;",
        [COPIED],
    ),
    "the bits that are used are defined": (
        LOAD + "and.b32 %r6, %r5, 0; or.b32 %r7, %r5, -1; add.u32 %r6, %r6, %r7;"
        "shl.b32 %r5, %r5, 16; and.b32 %r5, %r5, 0xffff; add.u32 %r6, %r6, %r5;"
        + OUT.format("%r6"),
        [],
    ),
    "one bit": (LOAD + "and.b32 %r6, %r5, 1;" + OUT.format("%r6"), [COPIED]),
    "a branch": (LOAD + "setp.eq.u32 %p1, %r5, 0; @%p1 bra done;", [BRANCH]),
    "a branch by the defined half": (
        LOAD + "shl.b32 %r6, %r5, 31; or.b32 %r6, %r6, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra done;",
        [],
    ),
    "a write under a condition": (
        LOAD + "setp.eq.u32 %p1, %r5, 0; @%p1 st.global.u32 [%rd3], 1;",
        [CONDITION],
    ),
    "a condition of arithmetic": (
        LOAD + "setp.eq.u32 %p1, %r5, 0; mov.u32 %r6, 1; @%p1 mov.u32 %r6, 2;" + OUT.format("%r6"),
        [COPIED],
    ),
    "a condition that nothing depends on": (
        LOAD + "setp.eq.u32 %p1, %r5, 0; @%p1 mov.u32 %r6, 2;",
        [],
    ),
    "a choice": (
        LOAD + "setp.eq.u32 %p1, %r5, 0; selp.u32 %r6, 1, 2, %p1;" + OUT.format("%r6"),
        [COPIED],
    ),
    "a choice between equals": (
        LOAD + "setp.eq.u32 %p1, %r5, 0; selp.u32 %r6, 2, 2, %p1;" + OUT.format("%r6"),
        [],
    ),
    "predicates": (
        LOAD + "setp.eq.u32 %p1, %r5, 0; setp.ge.u32 %p2, %r1, 0; or.pred %p3, %p1, %p2;"
        "and.pred %p4, %p1, !%p2; @!%p3 bra done; @%p4 bra done;",
        [],
    ),
    "an address": (
        LOAD + "and.b32 %r6, %r5, 4; add.u32 %r6, %r6, %r3; ld.shared.u32 %r7, [%r6];",
        [READ_AT],
    ),
    "an address that is used twice": (
        LOAD + "and.b32 %r6, %r5, 4; add.u32 %r6, %r6, %r3; ld.shared.u32 %r7, [%r6];\n"
        "ld.shared.u32 %r8, [%r6+4];",
        [READ_AT],
    ),
    "the address of a write": (
        LOAD + "and.b32 %r6, %r5, 4; add.u32 %r6, %r6, %r3; st.shared.u32 [%r6], 1;",
        [WRITE_AT],
    ),
    "the address of an atomic": (
        "st.shared.u32 [%r3], 0; st.shared.u32 [%r3+4], 0; bar.sync 0;"
        + LOAD
        + "and.b32 %r6, %r5, 4; add.u32 %r6, %r6, %r3; red.shared.add.u32 [%r6], 1;",
        [ATOMIC_AT],
    ),
    "an atomic on what nobody wrote": ("red.global.add.u32 [%rd4], 1;", [UPDATED]),
    "an exchange with what nobody wrote": ("atom.global.exch.b32 %r6, [%rd4], 1;", []),
    "what an exchange has found": (
        "atom.global.exch.b32 %r6, [%rd4], 1;" + OUT.format("%r6"),
        [COPIED],
    ),
    "an atomic with what nobody wrote": (LOAD + "red.global.add.u32 [%rd3], %r5;", [COPIED]),
    "an atomic on what was exchanged": (
        "atom.global.exch.b32 %r6, [%rd4], 1; red.global.add.u32 [%rd4], 1;",
        [],
    ),
    "shared memory": (SHARED + OUT.format("%r5"), [COPIED]),
    "shared memory that the thread has written": (
        "st.shared.u32 [%r3], %r1;" + SHARED + OUT.format("%r5"),
        [],
    ),
    "reserved shared memory": (
        "mov.u32 %r6, %reserved_smem_offset_begin; ld.shared.u32 %r5, [%r6+64];"
        + OUT.format("%r5"),
        [],
    ),
    "shared memory of which a byte is missing": (
        "st.shared.u16 [%r3], %r1; st.shared.u8 [%r3+2], %r1;" + SHARED + OUT.format("%r5"),
        [COPIED],
    ),
    "the bytes that are there": (
        "cvt.u16.u32 %h1, %r1; st.shared.u16 [%r3], %h1;"
        + SHARED
        + "and.b32 %r5, %r5, 0xffff;"
        + OUT.format("%r5"),
        [],
    ),
    "vectors": (
        "st.shared.v2.u32 [%r9], {%r1, %r1}; ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r9];"
        "add.u32 %r5, %r5, %r6; st.global.u32 [%rd3], %r5; @%p7 bra done;",
        [],
    ),
    "the missing half of a vector": (
        "st.shared.v2.u32 [%r9], {%r1, %r1}; ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r9];"
        + OUT.format("%r8"),
        [COPIED],
    ),
    "a sign": (
        "mov.u32 %r6, 0; st.shared.u8 [%r3], %r6; ld.shared.s8 %r5, [%r3];" + OUT.format("%r5"),
        [],
    ),
    "an undefined sign": (
        "ld.shared.s8 %r5, [%r3]; shr.s32 %r5, %r5, 31;" + OUT.format("%r5"),
        [COPIED],
    ),
    "a shift of an undefined sign": (
        LOAD + "shr.s32 %r6, %r5, 4; shr.u32 %r6, %r6, 28;" + OUT.format("%r6"),
        [COPIED],
    ),
    "a shift by all bits of an undefined sign": (
        LOAD + "shr.s32 %r6, %r5, 40;" + OUT.format("%r6"),
        [COPIED],
    ),
    "a field with an undefined sign": (
        LOAD
        + "and.b32 %r6, %r5, 8; bfe.s32 %r6, %r6, 0, 4; shr.u32 %r6, %r6, 31;"
        + OUT.format("%r6"),
        [COPIED],
    ),
    "a conversion of an undefined sign": (
        LOAD + "cvt.s32.s8 %r6, %r5; shr.u32 %r6, %r6, 31;" + OUT.format("%r6"),
        [COPIED],
    ),
    "a shift by an undefined number": (LOAD + "shl.b32 %r6, 1, %r5;" + OUT.format("%r6"), [COPIED]),
    "a field at an undefined place": (
        LOAD + "bfe.u32 %r6, 5, %r5, 3;" + OUT.format("%r6"),
        [COPIED],
    ),
    "a field at an undefined place of another": (
        LOAD + "bfi.b32 %r6, 5, 0, %r5, 3;" + OUT.format("%r6"),
        [COPIED],
    ),
    "bytes that are chosen by undefined bits": (
        LOAD + "mov.u32 %r7, 0x1234; prmt.b32 %r6, %r7, %r7, %r5;" + OUT.format("%r6"),
        [COPIED],
    ),
    "a shuffle from an undefined lane": (
        LOAD + "shfl.sync.idx.b32 %r6, %r1, %r5, 31, -1;" + OUT.format("%r6"),
        [COPIED],
    ),
    "an order that an undefined bit decides": (
        LOAD + "and.b32 %r6, %r5, 8; or.b32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 4; @%p1 bra done;",
        [BRANCH],
    ),
    "local memory": ("ld.local.u32 %r5, [own];" + OUT.format("%r5"), [COPIED]),
    "local memory that was written": (
        "st.local.u32 [own], %r1; ld.local.u32 %r5, [own];" + OUT.format("%r5"),
        [],
    ),
    "a generic address": (
        "cvta.shared.u64 %rd6, 0; cvt.u64.u32 %rd7, %r3; add.u64 %rd6, %rd6, %rd7;"
        "ld.u32 %r5, [%rd6];" + OUT.format("%r5"),
        [COPIED],
    ),
    "a variable of the module": (
        "mov.u64 %rd6, zeros; ld.global.u32 %r5, [%rd6];" + OUT.format("%r5"),
        [],
    ),
    "through memory": (
        LOAD + "st.global.u32 [%rd4+256], %r5; ld.global.u32 %r6, [%rd4+256];" + OUT.format("%r6"),
        [COPIED],
    ),
    "through memory that was defined": (
        "ld.global.u32 %r7, [%rd3];"
        + LOAD
        + OUT.format("%r5")
        + "ld.global.u32 %r6, [%rd3]; setp.eq.u32 %p1, %r6, 0;"
        + OUT.format("0")
        + "@%p1 bra done;",
        [BRANCH],
    ),
    "defined by a store": (
        "st.global.u32 [%rd4], %r1;" + LOAD + "setp.eq.u32 %p1, %r5, 0; @%p1 bra done;",
        [],
    ),
    "packed": (
        LOAD + "mov.b64 %rd6, {%r5, %r1}; mov.b64 {%r6, %r7}, %rd6;" + OUT.format("%r7"),
        [],
    ),
    "packed, the other half": (
        LOAD + "mov.b64 %rd6, {%r5, %r1}; mov.b64 {%r6, %r7}, %rd6;" + OUT.format("%r6"),
        [COPIED],
    ),
    "a shuffle": (LOAD + "shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1;" + OUT.format("%r6"), [COPIED]),
    "a shuffle from a lane that has a value": (
        "mov.u32 %r5, 1; setp.ne.u32 %p1, %r1, 0; @%p1 ld.global.u32 %r5, [%rd4];"
        "setp.ge.u32 %p2, %r1, 32; @%p2 bra done;"
        "shfl.sync.idx.b32 %r6, %r5, 0, 31, -1;" + OUT.format("%r6"),
        [],
    ),
    "a vote": (
        LOAD + "setp.eq.u32 %p1, %r5, 0; vote.sync.any.pred %p2, %p1, -1; @%p2 bra done;",
        [BRANCH],
    ),
    "a vote of lanes that have values": (
        UPPER_HALF + "setp.eq.u32 %p1, %r5, 0; mov.u32 %r6, 0xffff; @%p3 mov.u32 %r6, 0xffff0000;"
        "vote.sync.any.pred %p2, %p1, %r6; selp.u32 %r7, 1, 0, %p2; @!%p3 " + OUT.format("%r7"),
        [],
    ),
    "the bits of a ballot that are defined": (
        UPPER_HALF + "setp.eq.u32 %p1, %r5, 0; vote.sync.ballot.b32 %r6, %p1, -1;"
        "and.b32 %r6, %r6, 0xffff;" + OUT.format("%r6"),
        [],
    ),
    "the other bits of a ballot": (
        UPPER_HALF + "setp.eq.u32 %p1, %r5, 0; vote.sync.ballot.b32 %r6, %p1, -1;"
        "and.b32 %r6, %r6, 0x10000;" + OUT.format("%r6"),
        [COPIED],
    ),
    "a call": (LOAD + "call (%r6), increased, (%r5);" + OUT.format("%r6"), [COPIED]),
    "a call that ignores its argument": (
        LOAD + "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r5; call (b), constant, (a);"
        "ld.param.b32 %r6, [b]; }" + OUT.format("%r6"),
        [],
    ),
    "an operand of a barrier": (
        LOAD + "and.b32 %r6, %r5, 0; and.b32 %r7, %r5, 1; shl.b32 %r7, %r7, 6; or.b32 %r7, %r7, 64;"
        "barrier.sync %r6, 64;",
        [],
    ),
    "an asynchronous copy": (
        "cp.async.ca.shared.global [%r3], [%rd4], 4; cp.async.wait_all;"
        + SHARED
        + OUT.format("%r5"),
        [COPIED],
    ),
    "an asynchronous copy of zeros": (
        "cp.async.ca.shared.global [%r3], [%rd4], 4, 0; cp.async.wait_all;"
        + SHARED
        + OUT.format("%r5"),
        [],
    ),
    "the address of an asynchronous copy": (
        LOAD + "and.b32 %r6, %r5, 4; add.u32 %r6, %r6, %r3;"
        "cp.async.ca.shared.global [%r6+8], [%rd3], 4;",
        ["operand of a copy"],
    ),
    "the address of ldmatrix": (
        LOAD + "and.b32 %r6, %r5, 16; add.u32 %r6, %r6, %r9;"
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r7}, [%r6];",
        [READ_AT],
    ),
    "the bytes of items of wmma.load that are defined": (
        "".join(
            f"st.shared.u16 [%r3+{at}], %r1; st.shared.u8 [%r3+{at + 2}], %r1;"
            for at in range(0, 1024, 256)
        )
        + "bar.sync 0; wmma.load.c.sync.aligned.row.m16n16k16.shared.f32"
        "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%r9]; mov.b32 %r6, %f0;"
        "and.b32 %r6, %r6, 0xffffff;" + OUT.format("%r6"),
        [],
    ),
    "the address of stmatrix": (
        LOAD + "and.b32 %r6, %r5, 16; add.u32 %r6, %r6, %r9;"
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r6], {%r5};",
        [WRITE_AT],
    ),
    "the distance of rows of wmma.load": (
        LOAD + "and.b32 %r6, %r5, 8; add.u32 %r6, %r6, 16;"
        "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16"
        "{%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%r9], %r6;",
        [READ_AT],
    ),
    "the bytes of a bulk copy": (
        LOAD + "and.b32 %r6, %r5, 16; add.u32 %r6, %r6, 16; setp.eq.u32 %p1, %r1, 0;"
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r9], %r6;",
        ["operand of a copy", COPIED],
    ),
    "a bulk reduction of what nobody wrote": (
        "st.shared.u32 [%r3], 1; bar.sync 0; setp.eq.u32 %p1, %r1, 0;"
        "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd5], [%r9], 256;",
        [UPDATED],
    ),
    "a bulk reduction of what was written": (
        "st.shared.u32 [%r3], 1; bar.sync 0; setp.eq.u32 %p1, %r1, 0;"
        "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r9], 256;",
        [],
    ),
    "the target of a branch": (
        LOAD + "and.b32 %r6, %r5, 1; targets: .branchtargets done, done; brx.idx %r6, targets;",
        [BRANCH],
    ),
    "the carry": (
        LOAD + "add.cc.u32 %r6, %r5, %r5; addc.u32 %r7, 0, 0;" + OUT.format("%r7"),
        [COPIED],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels(case):
    body, wanted = CASES[case]
    assert uses(run(body)) == wanted


def test_text():
    (hazard,) = run(LOAD + "setp.eq.u32 %p1, %r5, 0; @%p1 bra done;", threads=32)
    assert (hazard.kernel, hazard.memory) == ("k", "DeviceBuffer 'fresh'")
    assert (hazard.start, hazard.stop, hazard.benign) == (0, 4, False)
    assert (hazard.first.mode, hazard.first.thread) == ("read", (0, 0, 0))
    assert hazard.second.ptx_line == hazard.first.ptx_line
    assert hazard.count == 32
    text, made = re.subn(r" \(made at [\w/]*test_init\.py:\d+\)", "", hazard.text)
    assert made == 1
    assert text == (
        "uninitialized value in kernel 'k': thread (0, 0, 0) of block (0, 0, 0) reads bytes 0 to 4"
        " of DeviceBuffer 'fresh' at PTX line 21, which nobody has written, and the value is used"
        " as the condition of a branch at PTX line 21 in thread (0, 0, 0) of block (0, 0, 0)."
        " Write the memory before, for example with zeros, or do not use what is not written (32"
        " times)"
    )


def test_a_page_that_was_defined_when_it_was_first_read():
    body = "ld.global.u32 %r6, [%rd3];" + LOAD + OUT.format("%r5") + "ld.global.u32 %r7, [%rd3];"
    body += "setp.eq.u32 %p1, %r7, %r6; @%p1 bra done;"
    with testing.configured("checks=init"), cu.Stream() as stream:
        testing.forget_hazards()
        large, fresh = cu.DeviceBuffer.zeros(1 << 16), cu.DeviceBuffer(256)
        begin = -large.address % PAGE
        with cu.Module(TEXT.format(body=body)) as module:
            module["k"].launch(1, 64, large[begin : begin + PAGE], fresh, stream=stream).wait()
    assert uses(testing.hazards()) == [BRANCH]


def test_the_part_that_was_written():
    """Only the threads whose words nobody has written are reported."""
    (hazard,) = run(LOAD + "setp.eq.u32 %p1, %r5, 0; @%p1 bra done;", written=[(0, 48)])
    assert (hazard.first.thread, hazard.start, hazard.count) == ((48, 0, 0), 192, 16)


def test_a_report_makes_the_value_defined():
    """A value counts as defined after it was reported. So one bug is one hazard."""
    body = LOAD + "setp.eq.u32 %p1, %r5, 0; @%p1 bra next; next: @%p1 bra done;"
    assert uses(run(body)) == [BRANCH]


def test_many_threads_and_blocks():
    hazards = run(LOAD + "setp.eq.u32 %p1, %r5, 0; @%p1 bra done;", threads=128, blocks=30)
    assert [hazard.count for hazard in hazards] == [3840]


@pytest.mark.parametrize("memory", ["shared", "local"])
def test_memory_of_earlier_blocks(memory):
    """What a block has written to memory of its own is undefined for the next block."""
    place = {"shared": "[%r3]", "local": "[own]"}[memory]
    hazards = run(
        f"mov.u32 %r2, %ctaid.x; setp.lt.u32 %p1, %r2, 16; @%p1 st.{memory}.u32 {place}, %r1;"
        f"@%p1 bra done; ld.{memory}.u32 %r5, {place}; setp.eq.u32 %p2, %r5, 0; @%p2 bra done;",
        blocks=32,
    )
    assert [hazard.count for hazard in hazards] == [16 * 64]


@pytest.mark.parametrize(("second", "wanted"), [(0, [COPIED]), (5, [])])
def test_local_memory_of_an_earlier_call(second, wanted):
    hazards = run(
        f"call (%r6), kept, (7); call (%r6), kept, ({second});" + OUT.format("%r6"), threads=32
    )
    assert uses(hazards) == wanted


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_in_a_graph(schedule):
    body = "ld.shared.u32 %r5, [%r3]; setp.eq.u32 %p1, %r5, 0; @%p1 bra done;"
    (hazard,) = run_in_a_graph(body, "init", schedule, launches=2)
    assert hazard.count == 128


def test_lines_of_cuda_c():
    source = """extern "C" __global__ void k(int *out, const int *in) {
        int value = in[threadIdx.x];
        if (value > 3)
            out[0] = 1;
    }"""
    try:
        text = toolkit.compile(source, name="lines.cu")
    except toolkit.CompilerNotFoundError as missing:
        pytest.skip(str(missing))
    with testing.configured("checks=init"), cu.Module(text) as module, cu.Stream() as stream:
        out, fresh = cu.DeviceBuffer.zeros(1, np.int32), cu.DeviceBuffer(32, np.int32)
        module["k"].launch(1, 32, out, fresh, stream=stream)
        stream.synchronize()
    (hazard,) = testing.hazards()
    assert (hazard.first.line, hazard.second.line) == (2, 3)


PRINT = """.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b32 count) vprintf (.param .b64 text, .param .b64 values);
.global .align 1 .b8 text[7] = {{37, 100, 32, 37, 115, 10, 0}};
.visible .entry k(.param .u64 out, .param .u64 fresh)
{{
    .reg .b32 %r<9>; .reg .b64 %rd<9>; .local .align 8 .b8 values[16]; .reg .pred %p<4>;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [fresh]; mov.u32 %r2, 5;
    {body}
    st.local.u32 [values], %r2; st.local.u64 [values+8], %rd1;
    mov.u64 %rd3, text; cvta.global.u64 %rd3, %rd3; mov.u64 %rd4, values; cvta.local.u64 %rd4, %rd4;
    {{ .param .b64 a; .param .b64 b; .param .b32 n; st.param.b64 [a], %rd3; st.param.b64 [b], %rd4;
    call.uni (n), vprintf, (a, b); ld.param.b32 %r1, [n]; }}
    ret;
}}
"""
PRINTED = {
    "defined": ("", []),
    "a number": ("ld.global.u32 %r2, [%rd2];", ["argument of printf"]),
    "a masked number": ("ld.global.u32 %r2, [%rd2]; and.b32 %r2, %r2, 0;", []),
    "what is not printed": ("ld.global.u32 %r3, [%rd2]; st.local.u32 [values+4], %r3;", []),
    "a text": ("st.global.u8 [%rd2+3], 0; mov.u64 %rd1, %rd2;", ["argument of printf"]),
}


@pytest.mark.parametrize("case", PRINTED)
def test_what_is_printed(case):
    body, expected = PRINTED[case]
    with testing.configured("checks=init"), cu.Stream() as stream:
        out, fresh = cu.DeviceBuffer.zeros(8, "u1"), cu.DeviceBuffer(8, "u1", name="fresh")
        with cu.Module(PRINT.format(body=body)) as module:
            module["k"].launch(1, 2, out, fresh, stream=stream)
            stream.synchronize()
    assert uses(testing.hazards()) == expected
    for hazard in testing.hazards():
        assert hazard.memory.startswith("DeviceBuffer 'fresh'")


# ---- memory outside of kernels ----


@pytest.fixture
def checked():
    with testing.configured("checks=init"), cu.Stream() as stream:
        testing.forget_hazards()
        yield stream


def fresh(count, name="fresh"):
    return cu.DeviceBuffer(count, np.uint8, name=name)


def test_copies_to_the_host(checked):
    buffer = fresh(1000)
    buffer[100:200].fill(1, stream=checked)
    buffer.to_numpy(stream=checked)
    (hazard,) = testing.hazards()
    assert (hazard.start, hazard.stop, hazard.count) == (0, 100, 2)
    assert (hazard.kernel, hazard.first, hazard.second.mode) == ("", None, "copy")
    assert hazard.second.file == __file__ or __file__.endswith(hazard.second.file)
    assert hazard.second.line > 0
    made = r"DeviceBuffer 'fresh' \(made at [\w/]*test_init\.py:\d+\)"
    assert re.search(f"nobody has written bytes 0 to 100 of {made}, and copy_to on", hazard.text)
    buffer.to_numpy(stream=checked)  # reported bytes count as defined
    assert len(testing.hazards()) == 1


def test_the_text_of_a_copy_that_the_driver_alone_knows(checked):
    buffer = fresh(16)
    copy = ctypes.CDLL(cu.driver_info().path).cuMemcpyDtoH_v2
    copy.argtypes = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
    checked.synchronize()
    assert copy(ctypes.create_string_buffer(16), buffer.address, 16) == 0
    (hazard,) = testing.hazards()
    assert ", and cuMemcpyDtoH_v2 copies them to the host" in hazard.text


@pytest.mark.parametrize("nbytes", [10, 5000, 100_000])
def test_copies_between_buffers(checked, nbytes):
    source, target = fresh(nbytes, "source"), cu.DeviceBuffer.zeros(nbytes, np.uint8, name="target")
    source[3 : nbytes - 4].fill(1, stream=checked)
    source.copy_to(target, stream=checked)
    target[3 : nbytes - 4].to_numpy(stream=checked)
    assert testing.hazards() == []
    target[:3].to_numpy(stream=checked)
    target[nbytes - 4 :].to_numpy(stream=checked)
    found = [(hazard.memory, hazard.start, hazard.stop) for hazard in testing.hazards()]
    assert found == [
        ("DeviceBuffer 'target'", 0, 3),
        ("DeviceBuffer 'target'", nbytes - 4, nbytes),
    ]


def test_zeros_and_copies_from_the_host_define(checked):
    for buffer in (
        cu.DeviceBuffer.zeros(10_000, np.uint8),
        cu.DeviceBuffer.from_array(np.arange(10_000, dtype="u1")),
    ):
        buffer.to_numpy(stream=checked)
    assert testing.hazards() == []


def test_memory_that_is_used_again(checked):
    """New memory is undefined, also where older memory was defined."""
    for _ in range(2):
        buffer = cu.DeviceBuffer(4096, np.uint8, stream=checked)
        buffer.to_numpy(stream=checked)
        buffer.fill(1, stream=checked)
        buffer.close()
    assert [hazard.count for hazard in testing.hazards()] == [2]


def test_memory_from_before_the_check(cuda_device):
    """Nothing is known about memory that was allocated while the check was off."""
    buffer = fresh(100)
    with testing.configured("checks=init"), cu.Stream() as stream:
        buffer.to_numpy(stream=stream)
        assert testing.hazards() == []


@pytest.mark.parametrize("how", ["a kernel", "a copy", "a discard"])
def test_memory_that_the_host_can_write(checked, how):
    """The driver does not see all writes of the host, so such memory counts as defined."""
    shared = cu.UnifiedBuffer.zeros(64, np.uint32)
    source = cu.DeviceBuffer(64, np.uint32)
    with cu.Module(TEXT.format(body=LOAD + OUT.format("%r5"))) as module:
        if how == "a kernel":
            module["k"].launch(1, 64, shared, source, stream=checked)
        elif how == "a copy":
            source.copy_to(shared, stream=checked)
        else:
            shared.discard(stream=checked)
        checked.synchronize()
        with shared.write() as array:
            array[:] = 1
        out = cu.DeviceBuffer.zeros(64, np.uint32)
        module["k"].launch(1, 64, out, shared, stream=checked)
        out.to_numpy(stream=checked)
    assert testing.hazards() == []


def test_off():
    assert run(LOAD + OUT.format("%r5"), checks="off") == []


def test_both_checks():
    """Races and undefined values are found in one run."""
    body = "st.shared.u32 [%r3], %r1; ld.shared.u32 %r5, [%r3+4];" + OUT.format("%r5")
    kinds = sorted(hazard.kind for hazard in run(body, checks="race+init"))
    assert kinds == ["race", "uninitialized"]
    assert {"race"} == {hazard.kind for hazard in run(body, checks="race")}


def test_a_fault_ends_the_check():
    """What a kernel has done before it faults is reported."""
    with testing.configured("checks=init"):
        body = LOAD + "setp.eq.u32 %p1, %r5, 7; @%p1 bra done; trap;"
        with pytest.raises(cu.ContextLostError):
            run(body)
        assert uses(testing.hazards()) == [BRANCH]
    testing.reset_device()
