"""Instructions without a state space use the state space of the variable at their address."""

import numpy as np
import pytest

from .running import WORD, run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

DECLARED = ".shared .align 16 .u32 s[4]; .local .align 16 .u32 l[4];"
BEFORE = ".visible .global .align 16 .u32 g[4] = {1, 2, 3, 4};"
FORMS = {
    "ld and st of shared memory": "st.u32 [s+4], 7; ld.u32 %r2, [s+4];",
    "ld and st of local memory": "st.u32 [l+8], 7; ld.u32 %r2, [l+8];",
    "ld of global memory": "ld.u32 %r2, [g+12]; add.u32 %r2, %r2, 3;",
    "vectors": "st.v2.u32 [s+8], {3, 4}; ld.v2.u32 {%r3, %r4}, [s+8]; add.u32 %r2, %r3, %r4;",
    "volatile": "st.volatile.u32 [s], 7; ld.volatile.u32 %r2, [s];",
    "atom": "st.shared.u32 [s], 5; atom.add.u32 %r3, [s], 2; ld.shared.u32 %r2, [s];",
    "red": "st.shared.u32 [s+4], 5; red.add.u32 [s+4], 2; ld.shared.u32 %r2, [s+4];",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_state_space_of_the_variable(form):
    body = f"{FORMS[form]} {WORD} st.global.u32 [%rd3], %r2;"
    found = run(body, np.zeros(1), np.zeros(1, "u4"), threads=1, before=BEFORE, declared=DECLARED)
    assert found.tolist() == [7]
