"""elect.sync, redux.sync of floats, and min and max of three floats."""

import numpy as np
import pytest

from .running import WORD, run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x00FFFF00, 0x80000001])
def test_one_lane_of_the_mask_is_elected(mask):
    """elect.sync elects one lane of the mask. PTX does not say which one, but all lanes agree."""
    body = f"""{WORD} mov.u32 %r2, -1; shl.b32 %r3, 1, %r1; and.b32 %r3, %r3, {mask};
    setp.eq.u32 %p2, %r3, 0; @%p2 bra skip; elect.sync %r2|%p1, {mask};
    @%p1 or.b32 %r2, %r2, 256; skip: st.global.u32 [%rd3], %r2;"""
    found = run(body, np.zeros(1), np.zeros(32, "u4"), capability=90)
    members = [lane for lane in range(32) if mask >> lane & 1]
    leaders = {int(found[lane]) & 255 for lane in members}
    assert len(leaders) == 1
    (leader,) = leaders
    assert leader in members
    assert [lane for lane in members if found[lane] & 256] == [leader]
    assert all(found[lane] == 0xFFFFFFFF for lane in range(32) if lane not in members)


def test_the_lane_of_the_leader_may_be_dropped():
    body = f"""{WORD} elect.sync _|%p1, -1; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd3], %r2;"""
    assert run(body, np.zeros(1), np.zeros(32, "u4"), capability=90).sum() == 1


SPECIALS = np.array(
    [0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -7.0], "f4"
)


def expected_of(flags: str, greatest: bool, values: np.ndarray) -> float:
    """The least or the greatest of some numbers."""
    values = values.astype("f8")
    if ".ftz" in flags:
        values = np.where(np.abs(values) < 2.0**-126, np.copysign(0.0, values), values)
    if ".abs" in flags:
        values = np.abs(values)
    numbers = values[~np.isnan(values)]
    if not len(numbers) or (".NaN" in flags and len(numbers) < len(values)):
        return np.nan
    # -0 is less than +0 here, but NumPy compares them as equal.
    return sorted(numbers, key=lambda x: (x, np.copysign(1, x)))[-1 if greatest else 0]


@pytest.mark.parametrize("flags", ["", ".ftz", ".NaN", ".abs", ".ftz.NaN.abs"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_min_and_max_of_three(name, flags):
    count = len(SPECIALS)
    given = np.array([[a, b, c] for a in SPECIALS for b in SPECIALS for c in SPECIALS])
    body = f"""mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, {count}, %r1;
    mul.wide.u32 %rd4, %r1, 12; add.u64 %rd4, %rd2, %rd4;
    ld.global.f32 %f1, [%rd4]; ld.global.f32 %f2, [%rd4+4]; ld.global.f32 %f3, [%rd4+8];
    {name}{flags}.f32 %f4, %f1, %f2, %f3; {WORD} st.global.f32 [%rd3], %f4;"""
    found = run(
        body,
        given,
        np.zeros(count**3, "f4"),
        threads=count,
        blocks=count**2,
        capability=100,
        version="8.8",
    )
    wanted = np.array([expected_of(flags, name == "max", row) for row in given], "f4")
    assert found[~np.isnan(wanted)].view("u4").tolist() == (
        wanted[~np.isnan(wanted)].view("u4").tolist()
    )
    assert set(found[np.isnan(wanted)].view("u4")) == {0x7FFFFFFF}


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x00F0F00F, 0x00000400])
@pytest.mark.parametrize("flags", ["", ".abs", ".NaN", ".abs.NaN"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_reductions_of_floats(name, flags, mask):
    """Each row of numbers is reduced by the lanes of the mask. The other lanes keep their word."""
    numbers = np.random.default_rng(3)
    rows = np.concatenate([
        numbers.choice(SPECIALS, (40, 32)),
        numbers.choice(SPECIALS[~np.isnan(SPECIALS)], (40, 32)),
        numbers.normal(size=(20, 32)).astype("f4"),
        np.full((1, 32), np.nan, "f4"),
    ])  # fmt: skip
    rows[::7].view("u4")[np.isnan(rows[::7])] = 0xFFC01234  # another NaN
    body = f"""mov.u32 %r2, %ctaid.x; shl.b32 %r3, 1, %r1; and.b32 %r3, %r3, {mask};
    mad.lo.u32 %r1, %r2, 32, %r1; {WORD} mul.wide.u32 %rd4, %r1, 4; add.u64 %rd4, %rd2, %rd4;
    ld.global.f32 %f1, [%rd4]; setp.eq.u32 %p2, %r3, 0; @%p2 bra skip;
    redux.sync.{name}{flags}.f32 %f1, %f1, {mask}; skip: st.global.f32 [%rd3], %f1;"""
    found = run(body, rows, np.zeros(rows.shape, "f4"), blocks=len(rows), capability=100,
                target="100a", version="8.6")  # fmt: skip
    members = np.array([bool(mask >> lane & 1) for lane in range(32)])
    assert found[:, ~members].tobytes() == rows[:, ~members].tobytes()
    for row, got in zip(rows, found[:, members], strict=True):
        wanted = np.float32(expected_of(flags, name == "max", row[members]))
        bits = 0x7FFFFFFF if np.isnan(wanted) else int(wanted.view("u4"))
        assert set(got.view("u4").tolist()) == {bits}, row[members]
