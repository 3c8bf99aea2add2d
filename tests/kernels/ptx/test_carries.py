"""Carries between additions and subtractions, as an H200 has answered.

`tests/kernels/arithmetic` has all pairs of instructions and many values.
"""

import numpy as np
import pytest

from .running import run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

ANSWERS = {  # two numbers: addc of zeros after sub.cc of them, subc of zeros after add.cc of them
    (1, 2): (0, 0xFFFFFFFF),
    (2, 1): (1, 0xFFFFFFFF),
    (0xFFFFFFFF, 1): (1, 0),
}


def test_an_addition_after_a_subtraction_and_the_reverse():
    body = """mul.wide.u32 %rd3, %r1, 8; add.u64 %rd4, %rd2, %rd3; add.u64 %rd3, %rd1, %rd3;
    ld.global.v2.u32 {%r2, %r3}, [%rd4];
    sub.cc.u32 %r4, %r2, %r3; addc.u32 %r5, 0, 0; add.cc.u32 %r4, %r2, %r3; subc.u32 %r6, 0, 0;
    st.global.v2.u32 [%rd3], {%r5, %r6};"""
    given = np.array(list(ANSWERS), "u4")
    found = run(body, given, np.zeros_like(given), threads=len(given))
    assert found.tolist() == [list(answer) for answer in ANSWERS.values()]
