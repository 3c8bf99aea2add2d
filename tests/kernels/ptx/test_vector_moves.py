"""mov between a register and a vector of smaller ones, and between vectors."""

import numpy as np
import pytest

from .running import WORD, run

GIVEN = np.arange(32, dtype="u4") * 0x01030507 + 0xF0E1D2C3
BYTES = ".reg .b8 %b<8>;"
LOAD = "mul.wide.u32 %rd5, %r1, 4; add.u64 %rd5, %rd2, %rd5; ld.global.u32 %r2, [%rd5];"

# Each text takes %r2 apart, and puts its bytes together in %r3 in another order.
ORDERS = {
    "4 parts of a word": (
        "mov.b32 {%b1, %b2, %b3, %b4}, %r2; mov.b32 %r3, {%b4, %b3, %b2, %b1};",
        (3, 2, 1, 0),
    ),
    "2 parts of a halfword": (
        """mov.b32 {%h1, %h2}, %r2; mov.b16 {%b1, %b2}, %h1; mov.b16 {%b3, %b4}, %h2;
        mov.b16 %h1, {%b2, %b1}; mov.b16 %h2, {%b4, %b3}; mov.b32 %r3, {%h1, %h2};""",
        (1, 0, 3, 2),
    ),
    "parts that are not wanted": (
        "mov.b32 {%b1, _, %b3, _}, %r2; mov.b32 %r3, {%b3, %b1, %b3, %b1};",
        (2, 0, 2, 0),
    ),
}


@pytest.mark.parametrize("way", ORDERS)
def test_bytes(way):
    moves, order = ORDERS[way]
    found = run(f"{LOAD} {moves} {WORD} st.global.u32 [%rd3], %r3;", GIVEN, np.zeros(32, "u4"),
                version="8.3", declared=BYTES)  # fmt: skip
    assert (found.view("u1").reshape(32, 4) == GIVEN.view("u1").reshape(32, 4)[:, order]).all()


def test_a_byte_that_a_conversion_has_made():
    """The headers of CUDA C convert a bfloat16 to a char by this code."""
    numbers = (np.arange(-16, 16, dtype="f4") * 7.25).view("u4")
    body = f"""{LOAD} mov.b32 {{%h1, %h2}}, %r2; cvt.rzi.s8.bf16 %b1, %h2;
    mov.b16 %h3, {{%b1, 0}}; cvt.u32.u16 %r3, %h3; {WORD} st.global.u32 [%rd3], %r3;"""
    found = run(body, numbers, np.zeros(32, "u4"), capability=90, version="8.3", declared=BYTES)
    wanted = np.trunc(numbers.view("f4")).astype("i4") & 0xFF
    assert (found == wanted).all()


DECLARED = """.reg .v4 .f32 v, w; .reg .v4 .b32 bits; .reg .v2 .f32 pair; .reg .v2 .u16 halves;
.reg .v4 .u16 four; .reg .f64 %fd<4>; .reg .v4 .u32 %vector<3>; .reg .v4 .u32 t;
.reg .v2 .b64 wide;"""
# Each text sets %r2 to %r5. At the start, these registers and %r6 have the values 2, 3, 4, 5 and 6.
VECTORS = {
    "constants": ("mov.v4.b32 {%r2, %r3, %r4, %r5}, {0, 1, -1, 7};", (0, 1, -1, 7)),
    "constants of floats": (
        "mov.v2.f32 {%f1, %f2}, {0f3F800000, 2.0}; mov.b32 %r2, %f1; mov.b32 %r3, %f2;",
        (0x3F800000, 0x40000000, 4, 5),
    ),
    "registers that change places": (
        "mov.v4.u32 {%r2, %r3, %r4, %r5}, {%r5, %r4, %r3, %r2};",
        (5, 4, 3, 2),
    ),
    "a rotation": ("mov.v4.s32 {%r3, %r4, %r5, %r2}, {%r2, %r3, %r4, %r5};", (5, 2, 3, 4)),
    "a pair": ("mov.v2.b32 {%r2, %r3}, {%r3, %r2};", (3, 2, 4, 5)),
    "dropped items": ("mov.v4.b32 {%r2, _, _, %r5}, {9, 8, 7, %r6};", (9, 3, 4, 6)),
    "the last of equal destinations wins": ("mov.v2.b32 {%r2, %r2}, {8, 9};", (9, 3, 4, 5)),
    "16 bits": (
        """cvt.u16.u32 %h2, %r2; cvt.u16.u32 %h3, %r3; mov.v2.b16 {%h2, %h3}, {%h3, %h2};
        mov.v4.b16 {%h4, %h5, %h6, %h7}, {%h2, 0xFFFF, 1, %h3}; mov.b32 %r2, {%h4, %h5};
        mov.b32 %r3, {%h6, %h7};""",
        (0xFFFF0003, 0x00020001, 4, 5),
    ),
    "64 bits": (
        """cvt.u64.u32 %rd4, %r2; cvt.u64.u32 %rd5, %r3; mov.v2.b64 {%rd4, %rd5}, {%rd5, %rd4};
        mov.v2.f64 {%fd1, %fd2}, {0d3FF0000000000000, %fd1}; cvt.u32.u64 %r2, %rd4;
        cvt.u32.u64 %r3, %rd5; cvt.rzi.u32.f64 %r4, %fd1;""",
        (3, 2, 1, 5),
    ),
    "vectors in registers": (
        """mov.v4.b32 bits, {%r2, %r3, %r4, %r5}; mov.v4.b32 v, bits; mov.v4.f32 w, v;
        mov.v4.b32 {%r5, %r4, %r3, %r2}, w;""",
        (5, 4, 3, 2),
    ),
    "components": (
        """mov.b32 v.x, %r2; mov.b32 v.y, %r3; mov.b32 v.b, %r4; mov.b32 v.a, %r5;
        mov.v2.f32 {v.x, v.y}, {v.w, v.z}; mov.v2.f32 pair, {v.r, v.g}; mov.b32 %r2, pair.x;
        mov.b32 %r3, pair.y; mov.b32 %r4, v.z; mov.b32 %r5, v.w;""",
        (5, 4, 4, 5),
    ),
    "a range of vectors": (
        """mov.v4.u32 %vector1, {%r2, %r3, %r4, %r5}; mov.v4.u32 %vector2, {6, 7, 8, 9};
        mov.u32 %vector2.x, %vector1.w; mov.v4.u32 %vector0, %vector2;
        mov.v4.u32 {%r2, %r3, %r4, %r5}, %vector0;""",
        (5, 7, 8, 9),
    ),
    "parts of a register": (
        """mov.b32 halves, %r6; mov.b32 %r2, halves; mov.b64 %rd4, {%r3, %r4}; mov.b64 pair, %rd4;
        mov.b32 %r3, pair.x; mov.b64 four, %rd4; cvt.u32.u16 %r4, four.z;
        mov.v2.b64 wide, {%rd4, 7}; mov.b64 {%r5, _}, wide.y;""",
        (6, 3, 4, 7),
    ),
    "loads and stores": (
        """st.local.v4.b32 [stored], {%r2, %r3, %r4, %r5}; ld.local.v4.f32 v, [stored];
        ld.local.v4.f32 {w.w, w.z, w.y, w.x}, [stored]; st.local.v4.f32 [stored], w;
        ld.local.v4.u32 t, [stored]; mov.v4.u32 {%r2, %r3, %r4, %r5}, t;""",
        (5, 4, 3, 2),
    ),
    "special registers": (
        "mov.v4.u32 t, %ntid; mov.v4.u32 {%r2, %r3, %r4, %r5}, t;",
        (32, 1, 1, 0),
    ),
    "a guard": (
        "setp.eq.u32 %p1, %r1, 99; @%p1 mov.v2.b32 {%r2, %r3}, {0, 0}; mov.u32 %r4, %tid.w;",
        (2, 3, 0, 5),
    ),
}


@pytest.mark.parametrize("way", VECTORS)
def test_vectors(way):
    moves, expected = VECTORS[way]
    start = "".join(f"mov.u32 %r{i}, {i};" for i in range(2, 7))
    body = f"""{start} {moves} mul.wide.u32 %rd3, %r1, 16; add.u64 %rd3, %rd1, %rd3;
    st.global.v4.u32 [%rd3], {{%r2, %r3, %r4, %r5}};"""
    found = run(body, np.zeros(1), np.zeros((32, 4), "u4"), capability=75,
                declared=DECLARED + ".local .align 16 .b32 stored[4];")  # fmt: skip
    assert (found == np.array([value & 0xFFFFFFFF for value in expected], "u4")).all()
