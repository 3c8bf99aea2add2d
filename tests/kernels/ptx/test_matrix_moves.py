"""ldmatrix, stmatrix and movmatrix."""

import numpy as np
import pytest

from .running import run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)
DECLARED = ".shared .align 16 .b8 tile[1024];"
MATRICES = np.random.default_rng(8).integers(0, 1 << 16, (4, 8, 8), "u2")
# Computes addresses of 16 bytes for each lane: %r2 in the tile, %rd4 in the input, %rd5 in the
# result. In the tile, the row of a lane is its index with the bits reversed.
FILL = """mov.u32 %r3, tile; brev.b32 %r2, %r1; shr.u32 %r2, %r2, 27; mad.lo.u32 %r2, %r2, 16, %r3;
mul.wide.u32 %rd4, %r1, 16; add.u64 %rd5, %rd1, %rd4; add.u64 %rd4, %rd2, %rd4;
ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd4];"""


def fragments(matrices: np.ndarray, transposed: bool) -> np.ndarray:
    """The registers of the lanes that hold the matrices, with the axes (lane, matrix)."""
    lanes = np.arange(32)
    found = []
    for matrix in matrices:
        matrix = matrix.T if transposed else matrix
        low, high = matrix[lanes // 4, 2 * (lanes % 4)], matrix[lanes // 4, 2 * (lanes % 4) + 1]
        found.append(low.astype("u4") | high.astype("u4") << 16)
    return np.array(found).T


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("transposed", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_loads(count, transposed, generic):
    registers = ", ".join(f"%r{20 + i}" for i in range(count))
    place = "%r2"
    convert = ""
    if generic:
        place, convert = "%rd6", "cvt.u64.u32 %rd6, %r2; cvta.shared.u64 %rd6, %rd6;"
    space = "" if generic else ".shared"
    body = f"""{FILL} st.shared.v4.b32 [%r2], {{%r10, %r11, %r12, %r13}}; bar.sync 0; {convert}
    ldmatrix.sync.aligned.m8n8.x{count}{transposed}{space}.b16 {{{registers}}}, [{place}];"""
    body += "".join(f"st.global.b32 [%rd5+{4 * i}], %r{20 + i};" for i in range(count))
    found = run(body, MATRICES, np.zeros((32, 4), "u4"), declared=DECLARED)
    wanted = fragments(MATRICES, bool(transposed))
    assert (found[:, :count] == wanted[:, :count]).all()
    assert not found[:, count:].any()


@pytest.mark.parametrize("transposed", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stores(count, transposed):
    """stmatrix stores the registers of the lanes as rows, which the lanes then read."""
    registers = ", ".join(f"%r{10 + i}" for i in range(count))
    body = f"""{FILL} st.shared.v4.b32 [%r2], {{0, 0, 0, 0}}; bar.sync 0;
    stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [%r2], {{{registers}}}; bar.sync 0;
    ld.shared.v4.b32 {{%r20, %r21, %r22, %r23}}, [%r2];
    st.global.v4.b32 [%rd5], {{%r20, %r21, %r22, %r23}};"""
    given = np.ascontiguousarray(fragments(MATRICES, bool(transposed)))
    found = run(body, given, np.zeros_like(MATRICES), capability=90, declared=DECLARED)
    assert (found[:count] == MATRICES[:count]).all()
    assert not found[count:].any()


def test_transposition_in_registers():
    body = f"""{FILL} movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r10;
    st.global.b32 [%rd5], %r20;"""
    given = np.ascontiguousarray(fragments(MATRICES, False))
    found = run(body, given, np.zeros((32, 4), "u4"), declared=DECLARED)
    assert (found[:, 0] == fragments(MATRICES, True)[:, 0]).all()
