"""Registers that always have the same value, and registers that only seem to."""

import numpy as np
import pytest

from .running import WORD, run

GIVEN = np.arange(32, dtype="u4") + 100
LANES = np.arange(32, dtype="u4")
# Each text sets %r2. %r1 is the index of the thread, and %rd2 the address of `GIVEN`.
VALUES = {
    "a number": ("mov.u32 %r2, 17;", 17),
    "a float": ("mov.f32 %f1, 0f40490FDB; mov.b32 %r2, %f1;", 0x40490FDB),
    "a constant of a constant": ("mov.u32 %r3, 17; mov.b32 %r2, %r3;", 17),
    "a special register": ("mov.u32 %r3, %laneid; mov.u32 %r2, %r3;", LANES),
    "a predicate": ("mov.pred %p1, 1; selp.u32 %r2, 5, 6, %p1;", 5),
    "a parameter": (
        "ld.param.u64 %rd9, [in]; cvta.to.global.u64 %rd8, %rd9; ld.global.u32 %r2, [%rd8+4];",
        101,
    ),
    "the upper half of a parameter": (
        """ld.param.u32 %r3, [in+4]; ld.param.u32 %r4, [in]; mov.b64 %rd9, {%r4, %r3};
        ld.global.u32 %r2, [%rd9+4];""",
        101,
    ),
    "two definitions": ("mov.u32 %r2, 17; setp.lt.u32 %p1, %r1, 5; @%p1 mov.u32 %r2, 18;",
                        np.where(LANES < 5, 18, 17)),
    "an addition to itself": ("mov.u32 %r2, 17; add.u32 %r2, %r2, %r1;", 17 + LANES),
    "a pair of definitions": ("mov.u32 %r2, 17; mov.b64 {%r2, %r3}, %rd9;", 3),
    "a loop": (
        """mov.u32 %r3, 0; mov.u32 %r2, 0;
        again: mov.u32 %r5, 3; add.u32 %r2, %r2, %r5; mov.u32 %r6, %r3; add.u32 %r3, %r6, 1;
        setp.lt.u32 %p1, %r3, 4; @%p1 bra again;""",
        12,
    ),
    "a copy in a loop": (
        """mov.u32 %r3, 7; mov.u32 %r4, 0; mov.u32 %r2, 0;
        again: mov.u32 %r5, %r3; add.u32 %r3, %r4, 10; add.u32 %r2, %r2, %r5;
        add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 3; @%p1 bra again;""",
        7 + 10 + 11,
    ),
    "the result of a shuffle": (
        "mov.u32 %r2, 17; shfl.sync.bfly.b32 %r2|%p1, %r1, 1, 31, -1;",
        LANES ^ 1,
    ),
    "a load": ("mov.u32 %r2, 17; ld.global.v2.u32 {%r2, %r3}, [%rd2];", 100),
}  # fmt: skip


@pytest.mark.parametrize("way", VALUES)
def test_values(way):
    code, expected = VALUES[way]
    body = f"mov.u64 %rd9, 3; {code} {WORD} st.global.u32 [%rd3], %r2;"
    if "%rd9, [" in code or "{%r4" in code:
        body = body.removeprefix("mov.u64 %rd9, 3;")
    found = run(body, GIVEN, np.zeros(32, "u4"))
    assert (found == np.broadcast_to(expected, 32)).all()


def test_a_branch_to_a_move():
    body = f"""mov.u32 %r2, 1; bra there; mov.u32 %r2, 2; add.u32 %r2, %r2, 5;
    there: mov.u32 %r3, 40; add.u32 %r2, %r2, %r3; {WORD} st.global.u32 [%rd3], %r2;"""
    assert (run(body, GIVEN, np.zeros(32, "u4")) == 41).all()


def test_a_constant_whose_guard_is_false():
    body = f"""setp.gt.u32 %p1, %r1, 40; mov.u32 %r3, 8; @!%p1 mov.u32 %r2, 17; @%p1 mov.u32 %r4, 3;
    add.u32 %r2, %r2, %r3; {WORD} st.global.u32 [%rd3], %r2;"""
    assert (run(body, GIVEN, np.zeros(32, "u4")) == 25).all()
