"""add, sub, mul and fma of pairs of floats, compared with the instructions for one float."""

import numpy as np
import pytest

from .running import run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

SPECIALS = np.array(
    [0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x80800001, 0x3F800000,
     0xBF800001, 0x7F7FFFFF, 0xFF800000, 0x7F800000, 0x7FC12345, 0x1F800000, 0x9FFFFFFF,
     0x4B800001, 0x3EAAAAAB],
    "u4",
)  # fmt: skip
COUNT = 256


def operands(how_many: int) -> np.ndarray:
    """Pairs of floats: special numbers, and numbers of random bits."""
    numbers = np.random.default_rng(7)
    bits = numbers.integers(0, 1 << 32, (COUNT, how_many, 2), dtype="u4")
    chosen = numbers.choice(SPECIALS, (COUNT, how_many, 2))
    return np.where(numbers.random((COUNT, how_many, 2)) < 0.5, chosen, bits)


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("rounding", ["", ".rn", ".rz", ".rm", ".rp"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_both_halves(name, rounding, ftz):
    if name == "fma" and not rounding:
        rounding = ".rn"  # fma has no rounding of its own
    given = operands(3)
    a, b, c = ("%rd4, %rd5, %rd6" if name == "fma" else "%rd4, %rd5, %rd5").split(", ")
    sources, singles = (f"{a}, {b}", "%f{0}, %f{1}") if name != "fma" else (
        f"{a}, {b}, {c}", "%f{0}, %f{1}, %f{2}")  # fmt: skip
    singly = "".join(
        f"{name}{rounding}{ftz}.f32 %f{7 + half}, {singles.format(1 + half, 3 + half, 5 + half)};"
        for half in (0, 1)
    )
    body = f"""mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 64, %r1;
    mul.wide.u32 %rd3, %r1, 24; add.u64 %rd3, %rd2, %rd3; ld.global.u64 %rd4, [%rd3];
    ld.global.u64 %rd5, [%rd3+8]; ld.global.u64 %rd6, [%rd3+16];
    mov.b64 {{%f1, %f2}}, %rd4; mov.b64 {{%f3, %f4}}, %rd5; mov.b64 {{%f5, %f6}}, %rd6;
    {name}{rounding}{ftz}.f32x2 %rd7, {sources}; {singly}
    mul.wide.u32 %rd3, %r1, 16; add.u64 %rd3, %rd1, %rd3;
    st.global.u64 [%rd3], %rd7; st.global.v2.f32 [%rd3+8], {{%f7, %f8}};"""
    found = run(body, given, np.zeros((COUNT, 2, 2), "u4"), threads=64, blocks=COUNT // 64,
                capability=100, version="8.6")  # fmt: skip
    assert found[:, 0].tolist() == found[:, 1].tolist()
    if name == "mul" and rounding == ".rn" and not ftz:  # NumPy computes this, too
        with np.errstate(all="ignore"):
            exact = given.view("f4").astype("f8")
            wanted = (exact[:, 0] * exact[:, 1]).astype("f4")
        numbers = ~np.isnan(wanted)
        assert found[:, 0][numbers].tolist() == wanted.view("u4")[numbers].tolist()


def test_the_destination_may_be_an_operand():
    body = """ld.global.u64 %rd4, [%rd2]; setp.eq.u32 %p1, %r1, 0;
    @%p1 add.f32x2 %rd4, %rd4, %rd4; @!%p1 mul.f32x2 %rd4, %rd4, %rd4;
    mul.wide.u32 %rd3, %r1, 8; add.u64 %rd3, %rd1, %rd3; st.global.u64 [%rd3], %rd4;"""
    found = run(body, np.array([3, 5], "f4"), np.zeros((2, 2), "f4"), threads=2, capability=100,
                version="8.6")  # fmt: skip
    assert found.tolist() == [[6, 10], [9, 25]]
