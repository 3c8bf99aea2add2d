"""wgmma: a warpgroup multiplies matrices in shared memory.

Bounds for floating-point results are the same as for mma.
"""

import re
from typing import NamedTuple

import numpy as np
import pytest

import cudadrv as cu

from .fragments import BITS, BOUNDS, decode, pack, places, random_integers
from .running import run
from .shared_matrices import Layout
from .test_matrix_products import floats

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)
RANDOM = np.random.default_rng(9090)
SHARED = 40 << 10
THREADS = 128


class Product(NamedTuple):
    """An instruction: types of D, A and B, number of columns, and what the operands say."""

    types: str
    columns: int
    a: Layout | None = Layout()  # None: A is in registers
    b: Layout = Layout()
    adds: int = 1
    scales: tuple[int, int] = (1, 1)
    modifiers: str = ""

    @property
    def items(self) -> list[str]:
        return self.types.split(".")

    @property
    def inner(self) -> int:
        return 256 // BITS[self.items[1]]

    def text(self, d: str, a: str) -> str:
        item = self.items[1]
        operation = ".and.popc" if item == "b1" else self.modifiers
        last = ["%p1"]
        if item not in ("s8", "u8", "b1"):
            last += map(str, self.scales)
        if BITS[item] == 16:
            last += [str(int(each.transposed)) for each in (self.a, self.b) if each]
        return (
            f"wgmma.mma_async.sync.aligned.m64n{self.columns}k{self.inner}.{self.types}{operation}"
            f" {d}, {a}, %rd7, {', '.join(last)};"
        )


def result_places(product: Product) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of D by thread, register, and place in the register."""
    count = 32 // BITS[product.items[0]]
    registers = product.columns // 2 // count
    thread, reg, i = np.ix_(np.arange(THREADS), np.arange(registers), np.arange(count))
    number, lane = reg * count + i, thread % 32
    row = thread // 32 * 16 + lane // 4 + number // 2 % 2 * 8
    return row, number // 4 * 8 + lane % 4 * 2 + number % 2


def in_registers(a: np.ndarray, item: str) -> np.ndarray:
    """The words of A in the registers, by thread."""
    inner = a.shape[1]
    row, column = np.broadcast_arrays(*places("a", item, 16, inner))
    parts = [pack(a[16 * warp : 16 * warp + 16], (row, column), item) for warp in range(4)]
    return np.concatenate(parts)


FENCE = "fence.proxy.async; wgmma.fence.sync.aligned;"
WAIT = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"


def multiply(product: Product, a, b, c) -> np.ndarray:
    """D, which is computed from matrices with the axes (M, K), (N, K) and (M, N)."""
    d_item, a_item, b_item = product.items
    where = result_places(product)
    words = where[0].shape[1]
    memory = np.zeros(SHARED, "u1")
    half = SHARED // 2
    descriptors = [0, product.b.descriptor() + (half >> 4)]
    product.b.place(b, b_item, memory[half:])
    if product.a:
        product.a.place(a, a_item, memory)
        descriptors[0] = product.a.descriptor()
    old = pack(c, where, d_item).astype("u4")
    left = (
        in_registers(a, a_item).astype("u4") if product.a is None else np.zeros((THREADS, 4), "u4")
    )
    given = [memory.view("u4"), np.array(descriptors, "u8").view("u4"), old, left]
    given = np.concatenate([each.reshape(-1) for each in given])
    begin_d = SHARED + 16
    begin_a = begin_d + 4 * THREADS * words

    d = ", ".join(f"%d{i}" for i in range(words))
    body = f"""mov.u32 %r2, tile; mov.u32 %r4, %r1;
    copy: mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd2, %rd4; ld.global.u32 %r3, [%rd4];
    mad.lo.u32 %r5, %r4, 4, %r2; st.shared.u32 [%r5], %r3; add.u32 %r4, %r4, {THREADS};
    setp.lt.u32 %p2, %r4, {SHARED // 4}; @%p2 bra copy; bar.sync 0;
    shr.u32 %r2, %r2, 4; cvt.u64.u32 %rd4, %r2;
    ld.global.u64 %rd6, [%rd2+{SHARED}]; add.u64 %rd6, %rd6, %rd4;
    ld.global.u64 %rd7, [%rd2+{SHARED + 8}]; add.u64 %rd7, %rd7, %rd4;
    setp.eq.u32 %p1, {product.adds}, 1;
    mul.wide.u32 %rd4, %r1, {4 * words}; add.u64 %rd3, %rd1, %rd4; add.u64 %rd4, %rd2, %rd4;
    mul.wide.u32 %rd5, %r1, 16; add.u64 %rd5, %rd2, %rd5;
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd5+{begin_a}];"""
    body += "".join(f"ld.global.b32 %d{i}, [%rd4+{begin_d + 4 * i}];" for i in range(words))
    a_operand = "%rd6" if product.a else "{%r10, %r11, %r12, %r13}"
    body += f"{FENCE} {product.text(f'{{{d}}}', a_operand)} {WAIT}"
    body += "".join(f"st.global.b32 [%rd3+{4 * i}], %d{i};" for i in range(words))
    declared = f".shared .align 1024 .b8 tile[{SHARED}]; .reg .b32 %d<{words}>;"
    found = run_group(body, given, np.zeros((THREADS, words), "u4"), declared=declared)
    result = np.zeros(c.shape, "f8" if d_item[0] == "f" else "i8")
    shifts = (np.arange(where[0].shape[2]) * BITS[d_item]).astype("u4")
    mask = np.uint32((1 << BITS[d_item]) - 1)
    result[where] = decode(found[:, :, None] >> shifts & mask, d_item)
    return result


def run_group(body, given, result, threads=THREADS, **others):
    major, minor = cu.Device(0).compute_capability
    if (major, minor) != (9, 0):
        pytest.skip(f"the GPU has compute capability {major}.{minor}")
    return run(body, given, result, threads=threads, target="90a", version="8.4", **others)


def check(product: Product) -> None:
    """Compare D with NumPy's, for random matrices."""
    d_item, a_item, b_item = product.items
    shape_a, shape_b, shape_d = (
        (64, product.inner),
        (product.columns, product.inner),
        (64, product.columns),
    )
    if d_item == "s32":
        a, b = (
            random_integers(RANDOM, item, shape)
            for item, shape in ((a_item, shape_a), (b_item, shape_b))
        )
        c = RANDOM.integers(-(1 << 20), 1 << 20, shape_d)
        c[0], c[1] = (1 << 31) - 5, -(1 << 31) + 5
        wanted = a @ b.T + product.adds * c
        low, high = -(1 << 31), (1 << 31) - 1
        limited = "satfinite" in product.modifiers
        wanted = wanted.clip(low, high) if limited else (wanted - low) % (1 << 32) + low
        assert (multiply(product, a, b, c) == wanted).all()
        return
    a, b, c = floats(a_item, shape_a), floats(b_item, shape_b), floats("f16", shape_d)
    found = multiply(product, a, b, c)
    sign = product.scales[0] * product.scales[1]
    wanted = sign * (a @ b.T) + product.adds * c
    size = np.abs(a) @ np.abs(b.T) + np.abs(c)
    bound = max(BOUNDS[d_item], 2.0**-11 if a_item[0] == "e" else 0)
    assert (np.abs(found - wanted) <= bound * size).all()
    assert len(np.unique(found)) > 64


TYPES = [
    *["f16.f16.f16", "f32.f16.f16", "f32.bf16.bf16", "f32.tf32.tf32"],
    *[f"{d}.{a}.{b}" for d in ("f16", "f32") for a, b in (("e4m3", "e5m2"), ("e5m2", "e4m3"))],
    *["f32.e4m3.e4m3", "f16.e5m2.e5m2"],
    *[f"s32.{a}.{b}" for a in ("s8", "u8") for b in ("s8", "u8")],
    "s32.b1.b1",
]


@pytest.mark.parametrize("of_a", ["memory", "registers"])
@pytest.mark.parametrize("types", TYPES)
def test_types(types, of_a):
    check(Product(types, 24, Layout(leading=2048) if of_a == "memory" else None))


SIZES = [*range(8, 257, 8)]


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("types", ["f32.bf16.bf16", "s32.s8.u8"])
def test_columns(types, first):
    """Each test multiplies with several numbers of columns."""
    for columns in SIZES[first::8]:
        if types[0] == "f" or columns % 16 == 0 or columns in (8, 24):
            check(Product(types, columns))


@pytest.mark.parametrize("types", ["f16.f16.f16", "f32.tf32.tf32", "f32.e5m2.e4m3", "s32.b1.b1"])
def test_most_columns(types):
    check(Product(types, 256, None))


# Layouts of matrices along K: what the strides mean, and where the rows of the pattern begin.
ALONG_K = [
    Layout(leading=128, stride=256),
    Layout(leading=2048, stride=128),
    Layout(leading=512, stride=1024),
    Layout(32, stride=256),
    Layout(32, stride=1024, leading=16),
    *[Layout(64, stride=512, leading=16, part=part) for part in range(2)],
    Layout(64, stride=1024),
    *[Layout(128, stride=1024, leading=16, part=part) for part in range(4)],
    Layout(128, stride=2048),
]
# Layouts of 64 rows or columns of 16 bits each, transposed.
ACROSS = [
    Layout(0, True, leading=128, stride=256),
    Layout(0, True, leading=1024, stride=128),
    Layout(0, True, leading=2048, stride=256),
    Layout(32, True, leading=512, stride=256),
    Layout(32, True, leading=256, stride=1024),
    Layout(64, True, leading=512, stride=1024),
    Layout(64, True, leading=2048, stride=512),
    Layout(128, True, leading=2048, stride=1024),
    Layout(128, True, leading=64, stride=2048),
]
SHIFTED = [Layout(128, stride=1024, base=3), Layout(64, stride=512, base=2)]


@pytest.mark.parametrize("types", ["f32.f16.f16", "f32.tf32.tf32", "s32.u8.s8", "s32.b1.b1"])
@pytest.mark.parametrize("layout", ALONG_K)
def test_layouts_along_k(layout, types):
    check(Product(types, 64, layout, layout))


@pytest.mark.parametrize("layout", ACROSS)
def test_transposed_layouts(layout):
    check(Product("f32.f16.f16", 64, layout, Layout()))
    check(Product("f32.bf16.bf16", 64, Layout(), layout))
    check(Product("f16.f16.f16", 64, None, layout))


def test_patterns_in_several_columns():
    """With 128 columns, B has two patterns of 128 bytes beside each other."""
    check(Product("f32.f16.f16", 128, None, Layout(128, True, leading=2048, stride=1024)))
    check(Product("f32.f16.f16", 128, None, Layout(128, True, leading=1024, stride=4096)))


@pytest.mark.parametrize("layout", SHIFTED)
def test_patterns_that_begin_elsewhere(layout):
    """The base offset says where the pattern begins, if it begins at no multiple of its size."""
    check(Product("f32.f16.f16", 16, layout, layout))


@pytest.mark.parametrize("adds", [0, 1])
@pytest.mark.parametrize("scales", [(1, -1), (-1, 1), (-1, -1)])
def test_scales(scales, adds):
    check(Product("f32.f16.f16", 16, scales=scales, adds=adds))
    check(Product("f16.e4m3.e4m3", 16, scales=scales, adds=adds))


@pytest.mark.parametrize("types", ["s32.s8.s8", "s32.u8.s8"])
@pytest.mark.parametrize("adds", [0, 1])
def test_saturation(types, adds):
    check(Product(types, 16, modifiers=".satfinite", adds=adds))


def test_infinities_and_nans():
    a, b, c = np.zeros((64, 16)), np.zeros((8, 16)), np.zeros((64, 8))
    a[0, 0], a[1, 0], a[2, 0], b[0, 0], c[3, 3] = np.inf, -np.inf, np.nan, 1, -np.inf
    found = multiply(Product("f32.f16.f16", 8), a, b, c)
    assert found[:2, 0].tolist() == [np.inf, -np.inf]
    assert np.isnan(found[2]).all()
    assert np.isnan(found[0, 1:]).all()  # infinity times zero is a NaN
    assert found[3, 3] == -np.inf
    assert not found[4:].any()


# Each thread fills its part of shared memory with 16-bit ones, and goes on when all have done so.
ONES = """mov.u32 %r2, tile; mad.lo.u32 %r3, %r1, 32, %r2; mov.b32 %r4, 0x3c003c00;
st.shared.v4.b32 [%r3], {%r4, %r4, %r4, %r4}; st.shared.v4.b32 [%r3+16], {%r4, %r4, %r4, %r4};
fence.proxy.async; bar.sync 0; shr.u32 %r2, %r2, 4; cvt.u64.u32 %rd4, %r2;
mov.b64 %rd5, 0x1000080000; or.b64 %rd4, %rd4, %rd5; setp.ne.u32 %p0, %r2, %r2;
mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x; mad.lo.u32 %r5, %r5, %r6, %r1;
mul.wide.u32 %rd3, %r5, 16; add.u64 %rd3, %rd1, %rd3;"""
OPERANDS = "{%f0, %f1, %f2, %f3}, %rd4, %rd4"
SMALL = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {OPERANDS}"
STORE = "st.global.v4.f32 [%rd3], {%f0, %f1, %f2, %f3};"
TILE = ".shared .align 1024 .b8 tile[8192];"


def test_a_warp_goes_on_when_the_memory_of_all_has_been_read():
    """After its wait, one warp overwrites the matrices of all four."""
    body = f"""{ONES} {FENCE} {SMALL}, %p0, 1, 1, 0, 0; {WAIT}
    setp.ge.u32 %p2, %r1, 32; @%p2 bra end; mov.u32 %r2, tile; mad.lo.u32 %r3, %r1, 128, %r2;
    mov.b32 %r4, 0; mov.u32 %r7, 0;
    clear: st.shared.b32 [%r3], %r4; add.u32 %r3, %r3, 4; add.u32 %r7, %r7, 1;
    setp.lt.u32 %p2, %r7, 32; @%p2 bra clear; end: {STORE}"""
    empty = np.zeros((16, THREADS, 4), "f4")
    found = run_group(body, np.zeros(1), empty, blocks=16, declared=TILE)
    assert (found == 16).all()


def test_several_products_in_a_group_of_two_warpgroups():
    """Both warpgroups of a block multiply, one of them more often."""
    more = f"{SMALL}, 1, 1, 1, 0, 0; wgmma.commit_group.sync.aligned;"
    body = f"""{ONES} {FENCE} {SMALL}, %p0, 1, 1, 0, 0; {SMALL}, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; setp.lt.u32 %p2, %r1, 128; @%p2 bra end;
    {more} {more} wgmma.wait_group.sync.aligned 2;
    end: wgmma.wait_group.sync.aligned 0; {STORE}"""
    empty = np.zeros((2 * THREADS, 4), "f4")
    found = run_group(body, np.zeros(1), empty, threads=2 * THREADS, declared=TILE)
    assert (found[:THREADS] == 32).all()
    assert (found[THREADS:] == 64).all()


MMA = "mma_async.sync.aligned.m64n8k16.f32.f16.f16"
D2, D4 = "{%r2, %r3}", "{%f0, %f1, %f2, %f3}"
FACTORS = "%rd1, %rd2, %p1"
MISTAKES = {
    f"mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {D2}, {FACTORS}, 1, 1, 0, 0": "types",
    f"mma_async.sync.aligned.m64n8k16.f32.tf32.tf32 {D4}, {FACTORS}, 1, 1": "types",
    f"mma_async.sync.aligned.m64n8k16.f32.f16.bf16 {D4}, {FACTORS}, 1, 1, 0, 0": "types",
    f"mma_async.sync.aligned.m64n40k32.s32.s8.s8 {D4}, {FACTORS}": "types",
    f"mma_async.sync.aligned.m64n12k16.f32.f16.f16 {D4}, {FACTORS}, 1, 1, 0, 0": "shape",
    f"mma_async.sync.aligned.m64n16k16.f32.f16.f16 {D4}, {FACTORS}, 1, 1, 0, 0": "8 are needed",
    f"mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc {D4}, {FACTORS}": "and.popc",
    f"{MMA} {D4}, {FACTORS}, 2, 1, 0, 0": "1 or -1",
    f"{MMA} {D4}, {FACTORS}, 1, 1, 0, 2": "0 or 1",
    f"{MMA} {D4}, {FACTORS}, 1, 1, 0": "operands",
    f"{MMA} {{%f0, _, %f2, %f3}}, {FACTORS}, 1, 1, 0, 0": "each must be a register",
    f"mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {D4}, %rd1, %rd2, %r1, 0, 1, 1, 1": "sparse",
    "wait_group.sync.aligned -1": "negative",
    "fence": "sync.aligned",
}


@pytest.mark.cuda_software
@pytest.mark.parametrize("text", MISTAKES)
def test_what_is_no_product(text):
    with pytest.raises(cu.CudaError, match=f"wgmma.*{re.escape(MISTAKES[text])}"):
        run_group(f"wgmma.{text};", np.zeros(1), np.zeros(1))


@pytest.mark.cuda_software
def test_only_for_its_architecture():
    with pytest.raises(cu.CudaError, match=r"needs \.target sm_90a"):
        run("wgmma.fence.sync.aligned;", np.zeros(1), np.zeros(1), capability=90)
