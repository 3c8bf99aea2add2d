"""mov between a register and a vector of smaller ones."""

import numpy as np
import pytest

from .running import WORD, run

GIVEN = np.arange(32, dtype="u4") * 0x01030507 + 0xF0E1D2C3
BYTES = ".reg .b8 %b<8>;"
LOAD = "mul.wide.u32 %rd5, %r1, 4; add.u64 %rd5, %rd2, %rd5; ld.global.u32 %r2, [%rd5];"

# Each takes %r2 apart, and puts its bytes together in %r3 in another order.
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
