"""mma: integer results are exact; floating-point results are within a bound that both drivers keep.

The bound for an element is relative to the sum of all |a * b| and |c|: 2^-10 for f16, 2^-20 for
f32, and 2^-50 for f64. For f8 operands it is 2^-11, because GPUs keep few bits of their products.
"""

import re

import numpy as np
import pytest

import cudadrv as cu

from .fragments import BITS, BOUNDS, pack, places, quad_places, random_integers, unpack
from .running import run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)
RANDOM = np.random.default_rng(1818)


def load(name: str, count: int, first: int, wide: bool) -> tuple[str, str]:
    """PTX that declares registers and loads them from the words of this lane."""
    bits = 64 if wide else 32
    registers = [f"%{name}{i}" for i in range(count)]
    text = f".reg .b{bits} {', '.join(registers)};"
    text += "".join(
        f"ld.global.b{bits} {each}, [%rd4+{bits // 8 * (first + i)}];"
        for i, each in enumerate(registers)
    )
    return text, f"{{{', '.join(registers)}}}"


def product(text: str, a, b, c, capability: int, version: str = "8.0") -> np.ndarray:
    """The result D of an instruction such as "m16n8k16.row.col.f32.f16.f16.f32"."""
    m, k = map(int, re.search(r"m(\d+)n8k(\d+)", text).groups())
    items = [each for each in re.split(r"\.", text) if each in BITS]
    where = {x: places(x, item, m, k) for x, item in zip("abc", items[1:], strict=True)}
    where["d"] = places("c", items[0], m, k)
    return product_of(text, items, where, (a, b, c), (m, 8), capability, version)


def product_of(text, items, where, matrices, shape, capability, version):
    """The result D of an instruction. `where` says which registers hold which elements."""
    wide = items[1] == "f64"
    parts = [
        pack(values, where[x], item)
        for x, values, item in zip("abc", matrices, items[1:], strict=True)
    ]
    counts = [part.shape[1] for part in parts]
    size = 8 if wide else 4
    body = f"mul.wide.u32 %rd4, %r1, {size * sum(counts)}; add.u64 %rd4, %rd2, %rd4;"
    operands, first = [], 0
    for name, count in zip("abc", counts, strict=True):
        code, operand = load(name, count, first, wide)
        body += code
        operands.append(operand)
        first += count
    results = where["d"][0].shape[1]
    names = [f"%d{i}" for i in range(results)]
    body += f".reg .b{8 * size} {', '.join(names)};"
    body += f"mma.sync.aligned.{text} {{{', '.join(names)}}}, {', '.join(operands)};"
    body += f"mul.wide.u32 %rd3, %r1, {size * results}; add.u64 %rd3, %rd1, %rd3;"
    body += "".join(f"st.global.b{8 * size} [%rd3+{size * i}], {n};" for i, n in enumerate(names))
    given = np.concatenate(parts, axis=1).astype(f"u{size}")
    found = run(
        body, given, np.zeros((32, results), f"u{size}"), capability=capability, version=version
    )
    return unpack(found, where["d"], items[0], shape)


INTEGERS = [
    *[
        (f"m{m}n8k{k}", a, b)
        for m, k in ((8, 16), (16, 16), (16, 32))
        for a in ("s8", "u8")
        for b in ("s8", "u8")
    ],
    *[
        (f"m{m}n8k{k}", a, b)
        for m, k in ((8, 32), (16, 32), (16, 64))
        for a, b in (("s4", "u4"), ("u4", "s4"), ("s4", "s4"))
    ],
]


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("shape, first, second", INTEGERS)
def test_integers(shape, first, second, limited):
    """With .satfinite sums are clamped; without it they wrap around."""
    m, k = map(int, re.search(r"m(\d+)n8k(\d+)", shape).groups())
    a = random_integers(RANDOM, first, (m, k))
    b = random_integers(RANDOM, second, (k, 8))
    c = RANDOM.integers(-(1 << 20), 1 << 20, (m, 8))
    c[0], c[1] = (1 << 31) - 5, -(1 << 31) + 5
    text = f"{shape}.row.col{'.satfinite' if limited else ''}.s32.{first}.{second}.s32"
    found = product(text, a, b, c, 80)
    wanted = a @ b + c
    low, high = -(1 << 31), (1 << 31) - 1
    wanted = wanted.clip(low, high) if limited else (wanted - low) % (1 << 32) + low
    assert (found == wanted).all()


@pytest.mark.parametrize("operation", ["xor", "and"])
@pytest.mark.parametrize("m, k", [(8, 128), (16, 128), (16, 256)])
def test_single_bits(m, k, operation):
    a, b = (random_integers(RANDOM, "b1", shape) for shape in ((m, k), (k, 8)))
    c = RANDOM.integers(-1000, 1000, (m, 8))
    text = f"m{m}n8k{k}.row.col.s32.b1.b1.s32.{operation}.popc"
    found = product(text, a, b, c, 90 if operation == "and" else 80)
    function = {"xor": np.bitwise_xor, "and": np.bitwise_and}[operation]
    wanted = function(a[:, :, None], b[None]).sum(axis=1) + c
    assert (found == wanted).all()


FLOATS = [
    *[(16, k, "f16", result, 80) for k in (8, 16) for result in ("f16", "f32")],
    *[(16, k, "bf16", "f32", 80) for k in (8, 16)],
    *[(16, k, "tf32", "f32", 80) for k in (4, 8)],
    *[(16, 32, item, "f32", 89) for item in ("e4m3", "e5m2")],
    (8, 4, "f64", "f64", 80),
    *[(16, k, "f64", "f64", 90) for k in (4, 8, 16)],
]
FRACTIONS = {"f16": 10, "bf16": 7, "tf32": 10, "e4m3": 3, "e5m2": 2, "f64": 52}


def floats(item: str, shape: tuple[int, int]) -> np.ndarray:
    """Random numbers that are exact in the format."""
    bits = FRACTIONS[item]
    numbers = RANDOM.integers(1 << bits, 2 << bits, shape) / (1 << bits)
    return numbers * RANDOM.choice([-2, -1, -0.5, 0.25, 1, 4], shape)


@pytest.mark.parametrize("m, k, item, result, capability", FLOATS)
def test_floats(m, k, item, result, capability):
    a, b = floats(item, (m, k)), floats(item, (k, 8))
    c = floats("f16", (m, 8))
    text = f"m{m}n8k{k}.row.col.{result}.{item}.{item}.{result}"
    found = product(text, a, b, c, capability, "8.4" if capability == 89 else "8.0")
    size = np.abs(a) @ np.abs(b) + np.abs(c)
    bound = 2.0**-11 if item[0] == "e" else BOUNDS[result]
    assert (np.abs(found - (a @ b + c)) <= bound * size).all()
    assert len(np.unique(found)) > 4 * m  # most elements differ


def test_different_types_of_f8():
    a, b, c = floats("e4m3", (16, 32)), floats("e5m2", (32, 8)), floats("f16", (16, 8))
    found = product("m16n8k32.row.col.f32.e4m3.e5m2.f32", a, b, c, 89, "8.4")
    size = np.abs(a) @ np.abs(b) + np.abs(c)
    assert (np.abs(found - (a @ b + c)) <= 2.0**-11 * size).all()


def test_infinities_and_nans():
    a, b, c = np.zeros((16, 8)), np.zeros((8, 8)), np.zeros((16, 8))
    a[0, 0], a[1, 0], a[2, 0], b[0, 0], c[3, 3] = np.inf, -np.inf, np.nan, 1, -np.inf
    found = product("m16n8k8.row.col.f32.f16.f16.f32", a, b, c, 80)
    assert found[:4, 0].tolist()[:2] == [np.inf, -np.inf]
    assert np.isnan(found[2]).all()
    assert np.isnan(found[0, 1:]).all()  # infinity times zero is a NaN
    assert found[3, 3] == -np.inf
    assert not found[4:].any()


@pytest.mark.parametrize("types", ["f16.f16.f16.f16", "f32.f16.f16.f32", "f32.f16.f16.f16"])
@pytest.mark.parametrize("of_a", ["row", "col"])
@pytest.mark.parametrize("of_b", ["row", "col"])
def test_four_products_in_one(types, of_a, of_b):
    """mma.m8n8k4 with f16: lanes n to n + 3 and n + 16 to n + 19 have matrices of their own."""
    items, layouts = types.split("."), {"a": of_a, "b": of_b, "c": ""}
    where = {x: quad_places(x, item, layouts[x]) for x, item in zip("abc", items[1:], strict=True)}
    where["d"] = quad_places("c", items[0], "")
    a, b, c = floats("f16", (4, 8, 4)), floats("f16", (4, 4, 8)), floats("f16", (4, 8, 8))
    text = f"m8n8k4.{of_a}.{of_b}.{types}"
    found = product_of(text, items, where, (a, b, c), (4, 8, 8), 70, "7.0")
    size = np.abs(a) @ np.abs(b) + np.abs(c)
    assert (np.abs(found - (a @ b + c)) <= BOUNDS[items[0]] * size).all()
    assert len(np.unique(found)) > 128


@pytest.mark.cuda_software
@pytest.mark.parametrize(
    "text",
    [
        "m8n8k4.row.col.f16.f16.f16.f32 {%r2, %r3, %r4, %r5}, {%r6, %r7}, {%r8, %r9}, "
        "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}",
        "m8n8k4.row.col.f32.f16.f16.bf16 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, {%r6, %r7}, "
        "{%r8, %r9}, {%r2, %r3, %r4, %r5}",
        "m8n8k16.col.row.s32.s8.s8.s32 {%r2, %r3}, {%r4}, {%r5}, {%r2, %r3}",
        "m8n8k16.row.s32.s8.s8.s32 {%r2, %r3}, {%r4}, {%r5}, {%r2, %r3}",
    ],
)
def test_what_is_no_product(text):
    with pytest.raises(cu.CudaError, match="mma"):
        run(f"mma.sync.aligned.{text};", np.zeros(1), np.zeros(1))


@pytest.mark.parametrize("late_lanes", [0, 7])
def test_lanes_that_parted_multiply_together(late_lanes):
    """Lanes that have diverged take part in one mma. Its result overwrites an operand."""
    body = f"""mov.b32 %r2, 0x01010101; setp.lt.u32 %p1, %r1, {late_lanes}; @%p1 bra late;
    mov.b32 %r3, 0x02020202; bra join; late: mov.b32 %r3, 0x02020202; add.u32 %r9, %r1, 1;
    join: mov.b32 %r4, %r1; mov.b32 %r5, 5;
    mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {{%r4, %r5}}, {{%r2}}, {{%r3}}, {{%r4, %r5}};
    mul.wide.u32 %rd3, %r1, 8; add.u64 %rd3, %rd1, %rd3; st.global.v2.u32 [%rd3], {{%r4, %r5}};"""
    found = run(body, np.zeros(1), np.zeros((32, 2), "u4"))
    assert found.tolist() == [[32 + lane, 37] for lane in range(32)]
