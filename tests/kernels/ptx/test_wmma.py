"""wmma: matrices are loaded from memory, multiplied and stored, in all layouts."""

import re

import numpy as np
import pytest

from .fragments import BITS, BOUNDS, decode, encode, random_integers
from .running import run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)
RANDOM = np.random.default_rng(1881)
ROOM = 4096  # bytes in memory for each matrix


def in_memory(values: np.ndarray, item: str, layout: str) -> np.ndarray:
    bits = encode(values if layout == "row" else values.T, item).ravel()
    each = np.unpackbits(bits.astype("<u8").view("u1").reshape(-1, 8), axis=1, bitorder="little")
    raw = np.packbits(each[:, : BITS[item]].ravel(), bitorder="little")
    return np.pad(raw, (0, ROOM - raw.size))


def registers(name: str, item: str, items: int, twice: bool) -> tuple[str, str]:
    width = 64 if item == "f64" else 32
    count = 8 if twice else items * BITS[item] // (32 * width)
    names = ", ".join(f"%{name}{i}" for i in range(count))
    return f".reg .b{width} {names};", f"{{{names}}}"


def product(
    shape: str,
    types: str,
    a,
    b,
    c,
    layouts="row col row row",
    stride="",
    space="global",
    rounding="",
):
    """The result D of an instruction. `types` are the types of d, a, b, c as PTX writes them."""
    m, n, k = map(int, re.findall(r"\d+", shape))
    written = types.split(".")
    d_item, c_item = written[0], written[-1]
    a_item, b_item = (written[1], written[2]) if len(written) == 4 else ("f16", "f16")
    la, lb, lc, ld = layouts.split()
    parts, names = "", {}
    sizes = {"a": (a_item, m * k), "b": (b_item, k * n), "c": (c_item, m * n), "d": (d_item, m * n)}
    for name, (item, items) in sizes.items():
        code, names[name] = registers(name, item, items, item == "f16" and name in "ab")
        parts += code
    rounding = f".{rounding}" if rounding else ""
    satfinite = ".satfinite" if d_item == "s32" and a_item != "b1" else ""
    operation = ".xor.popc" if a_item == "b1" else ""
    space = f".{space}" if space else ""
    body = f"""{parts}
    wmma.load.a.sync.aligned.{la}.{shape}{space}.{a_item} {names["a"]}, [%rd2];
    wmma.load.b.sync.aligned.{lb}.{shape}{space}.{b_item} {names["b"]}, [%rd2+{ROOM}];
    wmma.load.c.sync.aligned.{lc}.{shape}{space}.{c_item} {names["c"]}, [%rd2+{2 * ROOM}];
    wmma.mma{operation}.sync.aligned.{la}.{lb}.{shape}{rounding}.{types}{satfinite} {names["d"]},
    {names["a"]}, {names["b"]}, {names["c"]};
    wmma.store.d.sync.aligned.{ld}.{shape}{space}.{d_item} [%rd1], {names["d"]}{stride};"""
    given = np.concatenate(
        [in_memory(a, a_item, la), in_memory(b, b_item, lb), in_memory(c, c_item, lc)]
    )
    size = BITS[d_item] // 8
    found = run(body, given, np.zeros(8192 // size, f"u{size}"), capability=80)
    if stride:
        return decode(found, d_item)
    values = decode(found[: m * n], d_item)
    return values.reshape(m, n) if ld == "row" else values.reshape(n, m).T


SHAPES = {"m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layouts", ["row col row row", "col row col row", "row row row col"])
@pytest.mark.parametrize("item", ["s8", "u8"])
def test_bytes(shape, layouts, item):
    m, n, k = SHAPES[shape]
    a, b = (random_integers(RANDOM, item, size) for size in ((m, k), (k, n)))
    c = RANDOM.integers(-99, 99, (m, n))
    c[0, 0] = (1 << 31) - 1
    a[0], b[:, 0] = 1, 1
    found = product(shape, f"s32.{item}.{item}.s32", a, b, c, layouts)
    assert (found == np.minimum(a @ b + c, (1 << 31) - 1)).all()


@pytest.mark.parametrize("shape, item", [("m8n8k32", "s4"), ("m8n8k32", "u4"), ("m8n8k128", "b1")])
def test_parts_of_bytes(shape, item):
    k = 128 if item == "b1" else 32
    a, b = (random_integers(RANDOM, item, size) for size in ((8, k), (k, 8)))
    c = RANDOM.integers(-99, 99, (8, 8))
    found = product(shape, f"s32.{item}.{item}.s32", a, b, c)
    wanted = (a[:, :, None] ^ b[None]).sum(axis=1) if item == "b1" else a @ b
    assert (found == wanted + c).all()


FLOATS = [
    *[(shape, types) for shape in SHAPES for types in ("f32.f32", "f16.f16", "f16.f32", "f32.f16")],
    *[(shape, "f32.bf16.bf16.f32") for shape in SHAPES],
    ("m16n16k8", "f32.tf32.tf32.f32"),
    ("m8n8k4", "f64.f64.f64.f64"),
]


@pytest.mark.parametrize("shape, types", FLOATS)
def test_floats(shape, types):
    m, n, k = map(int, re.findall(r"\d+", shape))
    a, b, c = (RANDOM.integers(-100, 100, size) / 64 for size in ((m, k), (k, n), (m, n)))
    found = product(shape, types, a, b, c)
    size = np.abs(a) @ np.abs(b) + np.abs(c)
    assert (np.abs(found - (a @ b + c)) <= BOUNDS[types[:3]] * size).all()


@pytest.mark.parametrize("rounding", ["", "rn", "rz", "rm", "rp"])
def test_roundings(rounding):
    """Each of the four products is added and then rounded: down, up, to zero or to nearest."""
    a, b, c = np.full((8, 4), 2.0**-53), np.ones((4, 8)), np.ones((8, 8))
    a[4:] *= -1
    c[4:] *= -1
    found = product("m8n8k4", "f64.f64.f64.f64", a, b, c, rounding=rounding)
    larger, unchanged = 1 + 4 * 2.0**-52, 1
    upper, lower = {"rp": (larger, -unchanged), "rm": (unchanged, -larger)}.get(
        rounding, (unchanged, -unchanged)
    )
    assert (found[:4] == upper).all()
    assert (found[4:] == lower).all()


def test_distances_between_rows_and_generic_addresses():
    shape = "m16n16k16"
    a, b, c = (RANDOM.integers(-9, 9, (16, 16)) for _ in range(3))
    found = product(shape, "f32.f32", a, b, c, stride=", 40", space="")
    rows = found[: 16 * 40].reshape(16, 40)
    assert (rows[:, :16] == a @ b + c).all()
    assert not rows[:, 16:].any()


def test_a_load_may_overwrite_its_own_operands():
    body = """mov.u32 %r20, 40; add.u64 %rd4, %rd2, 64;
    wmma.load.c.sync.aligned.row.m8n8k32.global.s32 {%r20, %r21}, [%rd2], %r20;
    wmma.load.c.sync.aligned.row.m8n8k4.global.f64 {%rd4, %rd5}, [%rd4], 20;
    wmma.store.d.sync.aligned.row.m8n8k32.global.s32 [%rd1], {%r20, %r21}, 24;
    wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%rd1+32], {%rd4, %rd5}, 12;"""
    given = RANDOM.integers(0, 1 << 32, (8, 40), "u4")
    found = run(body, given, np.zeros((8, 24), "u4"))
    assert (found == given[:, [*range(8), *range(16, 32)]]).all()


def test_every_item_of_a_fragment_once_or_always():
    """A kernel that scales all elements of a fragment scales the matrix.

    An element may be in several registers, but then it is in all of them.
    """
    names = ", ".join(f"%a{i}" for i in range(8))
    others = ", ".join(f"%c{i}" for i in range(8))
    scale = "".join(f"add.rn.f16x2 %a{i}, %a{i}, %a{i};" for i in range(8))
    zero = "".join(f"mov.b32 %c{i}, 0;" for i in range(8))
    body = f""".reg .b32 {names}; .reg .b32 %b<8>; .reg .b32 {others};
    wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{{names}}}, [%rd2];
    wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {{%b0,%b1,%b2,%b3,%b4,%b5,%b6,%b7}},
    [%rd2+512]; {scale} {zero}
    wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {{{others}}}, {{{names}}},
    {{%b0,%b1,%b2,%b3,%b4,%b5,%b6,%b7}}, {{{others}}};
    wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {{{others}}}, 16;"""
    a, b = (RANDOM.integers(-9, 9, (16, 16)).astype("f2") for _ in range(2))
    found = run(body, np.concatenate([a, b.T]), np.zeros((16, 16), "f4"))
    assert (found == 2 * a.astype("f4") @ b.astype("f4")).all()
