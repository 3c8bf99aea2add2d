"""Operands array[index] of ld, st, mov and cvta. The index counts elements."""

import numpy as np
import pytest

from .running import WORD, run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

BEFORE = f"""
.visible .global .align 4 .u32 tab[40] = {{{", ".join(str(100 + i) for i in range(40))}}};
.visible .global .align 4 .u32 plane[2][3] = {{{{1, 2, 3}}, {{4, 5, 6}}}};
.visible .global .v4 .u32 quads[2] = {{{{1, 2, 3, 4}}, {{5, 6, 7, 8}}}};
.const .align 2 .u16 halves[40] = {{{", ".join(str(500 + i) for i in range(40))}}};
.shared .align 8 .u64 shared[40];
.func (.param .b32 result) third(.param .align 4 .b32 given[4])
{{
    .reg .b32 %r<2>;
    ld.param.b32 %r1, given[2];
    st.param.b32 [result], %r1;
    ret;
}}
"""
DECLARED = ".local .align 4 .u32 local[40]; .reg .s32 %s<2>; .reg .u16 %u<2>;"
INDEX_OF_EACH = """mov.b32 %s1, %r1; cvt.u16.u32 %h1, %r1; cvt.u16.u32 %u1, %r1;
cvt.u64.u32 %rd4, %r1;"""
lane = np.arange(32)

FORMS = {
    "a register": ("ld.global.u32 %r2, tab[%r1];", 100 + lane),
    "a register and a constant": ("ld.global.u32 %r2, tab[%r1+(2*4)];", 108 + lane),
    "a constant": ("ld.global.u32 %r2, tab[3];", 103 + 0 * lane),
    "a constant expression": ("ld.global.u32 %r2, tab[WARP_SZ-1+2];", 133 + 0 * lane),
    "a signed register": ("ld.global.u32 %r2, tab[%s1];", 100 + lane),
    "a register of 16 bits": ("ld.global.u32 %r2, tab[%h1];", 100 + lane),
    "an unsigned register of 16 bits": ("ld.global.u32 %r2, tab[%u1+1];", 101 + lane),
    "a register of 64 bits": ("ld.global.u32 %r2, tab[%rd4];", 100 + lane),
    "the upper half of an index does not count": (
        "shl.b64 %rd5, %rd4, 34; or.b64 %rd4, %rd4, %rd5; ld.global.u32 %r2, tab[%rd4];",
        100 + lane,
    ),
    "a type that is narrower than the elements": ("ld.global.u8 %r2, tab[%r1];", 100 + lane),
    "without a state space": ("ld.u32 %r2, tab[%r1];", 100 + lane),
    "all elements of a plane": (
        "rem.u32 %r3, %r1, 6; ld.global.u32 %r2, plane[%r3];",
        1 + lane % 6,
    ),
    "the numbers of vectors": ("and.b32 %r3, %r1, 7; ld.global.u32 %r2, quads[%r3];", 1 + lane % 8),
    "vectors": ("ld.global.v4.u32 {%r3, %r4, %r5, %r2}, quads[4];", 8 + 0 * lane),
    "vectors of 256 bits": (
        "ld.global.v8.u32 {%r3, _, _, _, _, _, _, %r2}, quads[0]; sub.u32 %r2, %r2, %r3;",
        7 + 0 * lane,
    ),
    "constant memory": (
        "ld.const.u16 %h2, halves[%r1]; ld.const.u16 %h3, halves[1];"
        "add.u16 %h2, %h2, %h3; cvt.u32.u16 %r2, %h2;",
        1001 + lane,
    ),
    "a store": (
        "st.global.u32 tab[%r1], %r1; st.global.u32 tab[32], 5; bar.warp.sync -1;"
        "ld.global.u32 %r2, [tab+128];"
        "mul.wide.u32 %rd5, %r1, 4; mov.u64 %rd6, tab; add.u64 %rd6, %rd6, %rd5;"
        "ld.global.u32 %r3, [%rd6]; add.u32 %r2, %r2, %r3;",
        5 + lane,
    ),
    "shared memory": (
        "cvt.u64.u32 %rd5, %r1; st.shared.u64 shared[%r1], %rd5; bar.sync 0; xor.b32 %r3, %r1, 3;"
        "ld.shared.u64 %rd6, shared[%r3]; cvt.u32.u64 %r2, %rd6;",
        lane ^ 3,
    ),
    "local memory": (
        "st.local.u32 local[%r1], %r1; st.local.u32 local[33], 7; ld.local.u32 %r2, local[33];"
        "ld.local.u32 %r3, local[%r1]; add.u32 %r2, %r2, %r3;",
        7 + lane,
    ),
    "parameters": (
        "{ .param .align 4 .b32 four[4]; .param .b32 one; st.param.b32 four[0], 9;"
        "st.param.b32 four[1], 9; st.param.b32 four[2], %r1; st.param.b32 four[3], 9;"
        "call (one), third, (four); ld.param.b32 %r2, [one]; }",
        lane,
    ),
    "mov": (
        "mov.u64 %rd5, tab[%r1]; ld.global.u32 %r2, [%rd5]; mov.b64 %rd5, tab[1];"
        "ld.global.u32 %r3, [%rd5]; add.u32 %r2, %r2, %r3;",
        201 + lane,
    ),
    "mov of an address of 32 bits": (
        "mov.u32 %r3, shared[%r1]; mov.u32 %r4, shared[1]; mov.u32 %r5, shared;"
        "sub.u32 %r3, %r3, %r5;"
        "sub.u32 %r4, %r4, %r5; add.u32 %r2, %r3, %r4;",
        8 * lane + 8,
    ),
    "cvta": ("cvta.global.u64 %rd5, tab[2]; ld.u32 %r2, [%rd5];", 102 + 0 * lane),
    "a guard": (
        "mov.u32 %r2, 1; setp.gt.u32 %p1, %r1, 9; @%p1 ld.global.u32 %r2, tab[%r1];",
        np.where(lane > 9, 100 + lane, 1),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_index_counts_elements(form):
    body, expected = FORMS[form]
    is_new = ".v8" in body  # needs sm_100
    found = run(
        f"{INDEX_OF_EACH} {body} {WORD} st.global.u32 [%rd3], %r2;",
        np.zeros(1),
        np.zeros(32, "u4"),
        before=BEFORE,
        declared=DECLARED,
        version="8.8" if is_new else "8.0",
        capability=100 if is_new else 75,
    )
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("index", ["%r2", "-1"])
def test_a_distance_has_32_bits_without_a_sign(index):
    """An index of -1 leads 4 GiB beyond, not before the array."""
    body = f"""mov.u32 %r2, -1; mov.u64 %rd4, tab[{index}]; mov.u64 %rd5, tab;
    sub.u64 %rd4, %rd4, %rd5; shl.b64 %rd6, %rd4, 0; mul.wide.u32 %rd3, %r1, 8;
    add.u64 %rd3, %rd1, %rd3; st.global.u64 [%rd3], %rd6;"""
    found = run(body, np.zeros(1), np.zeros(32, "u8"), before=BEFORE, capability=75)
    assert set(found.tolist()) == {0xFFFFFFFC}
