"""Functions that kernels call: parameters and results in registers, registers of the module."""

import numpy as np
import pytest
from results import array_of

import cudadrv as cu

KERNEL = """.version {version}
.target {target}
.address_size 64
{before}
.visible .entry calls(.param .u64 out)
{{
    .reg .pred %p<6>; .reg .u16 %h<6>; .reg .u32 %r<8>; .reg .u64 %rd<6>; .reg .f64 %fd<6>;
    .reg .v4 .u32 %v<3>; .reg .v2 .f64 %d<3>; .reg .b16 %q<3>;
    mov.u32 %r1, %tid.x; cvt.u16.u32 %h1, %r1; neg.s32 %r2, %r1; setp.gt.u32 %p1, %r1, 4;
    {body}
    ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r1, 4, %rd1; st.global.u32 [%rd1], %r3;
    ret;
}}
"""
i = np.arange(8)


def results(before: str, body: str, version: str = "7.0", target: str = "sm_75") -> list[int]:
    """What 8 threads leave in %r3. At the start %r1 has the index of the thread."""
    output = cu.DeviceBuffer.zeros(8, "i4")
    text = KERNEL.format(before=before, body=body, version=version, target=target)
    with cu.Module(text) as module, cu.Stream() as stream:
        module["calls"].launch(1, 8, output, stream=stream)
        stream.synchronize()
    return array_of(output).tolist()


MIXED = """.func (.reg .s32 result) mixed(.reg .u32 x, .param .u32 y, .reg .s32 z)
{
    .reg .pred p;
    .reg .u32 other;
    ld.param.u32 other, [y];
    setp.gt.u32 p, x, 4;
    mov.s32 result, z;
    @p ret;
    mad.lo.s32 result, z, x, other;
}
"""


def test_parameters_in_registers(driver):
    """Each thread gets its own result, whichever branch of the function it has taken."""
    found = results(MIXED, "call (%r3), mixed, (%r1, 1000, %r2);")
    assert found == np.where(i <= 4, 1000 - i * i, -i).tolist()


REVERSED = """.func (.reg .v4 .u32 r) reversed(.reg .v4 .u32 a, .reg .u32 add)
{ mov.v4.u32 r, {a.w, a.z, a.y, a.x}; add.u32 r.x, r.x, add; }
.func (.reg .v2 .f64 r) swapped(.reg .v2 .f64 a) { mov.v2.f64 r, {a.y, a.x}; ret; }
.func (.reg .v4 .u16 r) narrow(.reg .v4 .u16 a) { mov.v4.u16 r, {a.y, a.x, a.w, a.z}; ret; }
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            """mov.v4.u32 %v1, {%r1, 10, 20, %r2}; call (%v2), reversed, (%v1, 100);
            mad.lo.u32 %r3, %v2.x, 1000, %v2.y; add.u32 %r3, %r3, %v2.w;""",
            (100 - i) * 1000 + 20 + i,
        ),
        (
            """cvt.rn.f64.u32 %d1.x, %r1; mov.f64 %d1.y, 0d4000000000000000;
            call (%d1), swapped, (%d1); cvt.rzi.s32.f64 %r3, %d1.x; cvt.rzi.s32.f64 %r4, %d1.y;
            mad.lo.s32 %r3, %r3, 100, %r4;""",
            200 + i,
        ),
        (
            """.reg .v4 .u16 %w; mov.v4.u16 %w, {1, 2, 3, %h1}; call (%w), narrow, (%w);
            mov.b32 %r3, {%w.z, %w.y};""",
            i + (1 << 16),
        ),
        (
            """mov.v4.u32 %v1, {1, 2, 3, 4}; @%p1 mov.u32 %v1.w, 7;
            @%p1 call (%v1), reversed, (%v1, 0); mov.u32 %r3, %v1.x;""",
            np.where(i > 4, 7, 1),
        ),
    ],
)
def test_vectors_in_registers(driver, body, expected):
    assert results(REVERSED, body) == expected.tolist()


# A function with two results lets all functions of its module leave the ABI, and only without the
# ABI can parameters be predicates or have 16 bits.
NARROW = """.func (.reg .u16 r, .reg .pred odd) narrow(.reg .u16 a, .reg .s16 b, .reg .pred p)
{
    .reg .pred q; .reg .u16 one;
    and.b16 one, a, 1; setp.ne.u16 odd, one, 0; add.u16 r, a, 100;
    @p ret;
    add.s16 r, r, b; not.pred odd, odd;
}
.func (.reg .pred r) not(.reg .pred a) { not.pred r, a; ret; }
.func (.reg .b8 r) byte(.reg .b8 a) { cvt.u8.u8 r, a; }
.func (.reg .u8 r) sign(.reg .s8 a, .reg .f16 b)
{ .reg .u32 x; cvt.s32.s8 x, a; shr.s32 x, x, 31; cvt.u8.u32 r, x; }
"""
CODED = "selp.u32 %r4, 1000, 0, {}; add.u32 %r3, %r3, %r4;"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "call (%h2, %p2), narrow, (%h1, -3, %p1); cvt.u32.u16 %r3, %h2;" + CODED.format("%p2"),
            np.where(i > 4, 100 + i + i % 2 * 1000, 97 + i + (1 - i % 2) * 1000),
        ),
        ("call (%p2), not, (%p1); mov.u32 %r3, 0;" + CODED.format("%p2"), np.where(i > 4, 0, 1000)),
        (
            # The guard, the argument and the result are one predicate.
            "mov.u32 %r3, 0; @%p1 call (%p1), not, (%p1);" + CODED.format("%p1"),
            0 * i,
        ),
        (
            # Only the guard's threads get results.
            "mov.u16 %h2, 7; setp.eq.u32 %p2, %r1, %r1;"
            "@!%p1 call (%h2, %p2), narrow, (%h1, 0, %p1);"
            "cvt.u32.u16 %r3, %h2;" + CODED.format("%p2"),
            np.where(i > 4, 1007, 100 + i + (1 - i % 2) * 1000),
        ),
        ("call (_, %p2), narrow, (5, 0, %p1); mov.u32 %r3, 0;" + CODED.format("%p2"),
         np.where(i > 4, 1000, 0)),
    ],
)  # fmt: skip
@pytest.mark.cuda_software
def test_predicates_and_registers_of_16_bits(driver, body, expected):
    """The compiler of the driver 580.159.04 crashes (SIGSEGV) with each of these texts."""
    assert results(NARROW, body) == expected.tolist()


def test_the_abi_has_no_predicates(driver):
    """A GPU refuses such calls, unless something lets the module's functions leave the ABI."""
    alone = ".func (.reg .pred r) not(.reg .pred a) { not.pred r, a; ret; }"
    with pytest.raises(cu.CudaError, match=r"(?i)predicate"):
        results(alone, "call (%p2), not, (%p1);")
    assert results(alone, "mov.u32 %r3, 1;") == [1] * 8


ADDED = ".func (.param .b32 r) added(.param .b32 a)"
BODY = "{ .reg .b32 x; ld.param.b32 x, [a]; add.u32 x, x, 5; st.param.b32 [r], x; ret; }\n"
CALL = """{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call (y), added, (x);
ld.param.b32 %r3, [y]; }"""


@pytest.mark.parametrize(
    "before",
    [
        f"{ADDED}\n{ADDED}\n{BODY}",
        f"{ADDED}\n.visible .global .u32 x;\n{ADDED};\n{ADDED}{BODY}",
        f"{ADDED}\n.func nothing()\n{ADDED}{BODY}.func nothing() {{ ret; }}",
    ],
)
def test_a_declaration_may_end_without_a_semicolon(driver, before):
    assert results(before, CALL) == (i + 5).tolist()


SHARED = """.reg .u32 total; .reg .pred %flag<3>; .reg .v2 .u32 pair;
.local .align 8 .u32 kept[2];
.func add(.reg .u32 a)
{
    .reg .pred p; .reg .u32 x;
    setp.gt.u32 p, a, 3;
    @p bra large;
    add.u32 total, total, a; add.u32 pair.y, pair.y, 1;
    @!p ret;
large:
    add.u32 total, total, 100; not.pred %flag1, %flag1;
    ld.local.u32 x, [kept+4]; add.u32 x, x, total; st.local.u32 [kept+4], x;
}
.func (.reg .u32 r) twice(.reg .u32 a) { call add, (a); call add, (a); mov.u32 r, total; ret; }
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mov.u32 total, 1; call add, (%r1); mov.u32 %r3, total;", np.where(i > 3, 101, 1 + i)),
        (
            "mov.u32 total, %r1; call (%r3), twice, (%r1); add.u32 %r3, %r3, total;",
            2 * np.where(i > 3, 200 + i, 3 * i),
        ),
        # The result of the call is itself a register of the module.
        ("mov.u32 total, 7; call (total), twice, (1); add.u32 %r3, total, 0;", 9 + 0 * i),
        (
            "setp.eq.u32 %flag1, %r1, 5; mov.u32 total, 0; call add, (%r1); mov.u32 %r3, 7;"
            + CODED.format("%flag1"),
            7 + np.where((i > 3) & (i != 5), 1000, 0),
        ),
        pytest.param(  # driver 580.159.04 loses what a function writes to a part of a vector
            "mov.v2.u32 pair, {1, 2}; mov.u32 total, 0; call add, (%r1);"
            "mad.lo.u32 %r3, pair.x, 10, pair.y;",
            np.where(i > 3, 12, 13),
            marks=pytest.mark.cuda_software,
        ),
        (
            # A loop around a call, and a call under a guard.
            """mov.u32 total, 0; mov.u32 %r4, 0;
            again: @%p1 call add, (2); add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 3; @%p2 bra again;
            mov.u32 %r3, total;""",
            np.where(i > 4, 6, 0),
        ),
        (
            "mov.u32 total, %r1; st.local.u32 [kept+4], 1000; call add, (9);"
            "ld.local.u32 %r3, kept[1];",
            1100 + i,
        ),
        ("st.local.u32 kept[0], %r1; st.local.u32 [kept+4], 5; ld.local.u32 %r3, [kept];", i),
    ],
)
def test_registers_and_local_memory_of_the_module(driver, body, expected):
    """All functions that a thread runs share its registers and local memory of the module."""
    assert results(SHARED, body, "2.3", "sm_20") == expected.tolist()


@pytest.mark.cuda_software
@pytest.mark.parametrize("declared", [".reg .u32 total;", ".local .u32 kept[4];"])
def test_the_abi_has_no_registers_of_the_module(driver, declared):
    """The toolkit's ptxas refuses such registers. The driver 580.159.04 accepts them."""
    with pytest.raises(cu.CudaError, match=r"(?i)not allowed with ABI|before \.version 3\.0"):
        results(declared, "mov.u32 %r3, 1;")
