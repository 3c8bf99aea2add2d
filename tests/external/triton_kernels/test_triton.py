"""Compiles kernels in Triton for sm_90, launches their PTX, and compares with NumPy.

Triton writes wgmma, copies of boxes and mbarriers for sm_90, and needs no GPU to compile.
"""

import re

import kernels
import numpy as np
import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import ptx_get_version
from triton.compiler import ASTSource

import cudadrv as cu

pytestmark = pytest.mark.filterwarnings("default")  # the warnings of Triton itself are no errors
TARGET = GPUTarget("cuda", 90, 32)
LETTERS = {"f4": "fp32", "f2": "fp16", "i4": "i32", "u1": "u8", "i1": "i8", "i8": "i64"}


def type_of(argument, dtype):
    if dtype:
        return f"*{dtype}"
    if isinstance(argument, np.ndarray):
        return f"*{LETTERS[argument.dtype.str[1:]]}"
    return "fp32" if isinstance(argument, float) else "i32"


def compile_kernel(kernel, arguments, constants, types, options):
    """Compile a kernel. As in Triton, pointers and multiples of 16 are declared as divisible."""
    names = [name for name in kernel.arg_names if name not in constants]
    given = dict(zip(names, arguments, strict=True))
    signature = {
        name: "constexpr" if name in constants else type_of(given[name], types.get(name))
        for name in kernel.arg_names
    }
    divided = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(kernel.arg_names)
        if signature[name][0] == "*" or (signature[name] == "i32" and given[name] % 16 == 0)
    }
    source = ASTSource(kernel, signature, constants, divided)
    code = triton.compile(source, target=TARGET, options=options)
    newest = ptx_get_version("{}.{}".format(*cu.driver_info().version))
    major, minor = re.search(r"\.version (\d+)\.(\d+)", code.asm["ptx"]).groups()
    if int(major + minor) <= newest:
        return code
    options = {**(options or {}), "ptx_version": newest}  # what the driver knows
    return triton.compile(source, target=TARGET, options=options)


def launch(kernel, grid, *arguments, types=None, uses="", options=None, borrows=(), **constants):
    """Launch a kernel. Arrays are copied to the device, and back afterwards.

    `types` names the types of elements that NumPy does not have. The PTX has to have the
    instruction `uses`.
    """
    code = compile_kernel(kernel, arguments, constants, types or {}, options)
    assert uses in code.asm["ptx"]
    function = cu.Module(code.asm["ptx"])[code.metadata.name]
    if code.metadata.shared > 48 * 1024:
        function.max_dynamic_shared_bytes = code.metadata.shared
    blocks = code.metadata.num_ctas  # number of blocks in the cluster of a program
    width, *others = grid if isinstance(grid, tuple) else (grid,)
    grid = (blocks * width, *others)
    scratch_bytes = max(int(np.prod(grid)) * code.metadata.global_scratch_size, 1)
    with cu.Stream() as stream:
        buffers = [
            cu.DeviceBuffer.from_array(each) if isinstance(each, np.ndarray) else each
            for each in arguments
        ]
        function.launch(
            grid,
            32 * code.metadata.num_warps,
            *buffers,
            *(cu.DeviceBuffer.zeros(scratch_bytes, "u1"), 0),  # 0: nothing is profiled
            shared_bytes=code.metadata.shared,
            borrows=borrows,
            cluster=blocks if blocks > 1 else None,
            stream=stream,
        )
        for argument, buffer in zip(arguments, buffers, strict=True):
            if isinstance(argument, np.ndarray):
                buffer.copy_to(argument, stream=stream)


def random(*shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_near(found, wanted, tolerance):
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_add():
    x, y, out = random(1000), random(1000, seed=1), np.zeros(1000, "f4")
    launch(kernels.add, 4, x, y, out, x.size, BLOCK=256)
    assert (out == x + y).all()


@pytest.mark.parametrize("columns", [100, 781, 1024])
def test_softmax(columns):
    x = random(7, columns)
    out = np.zeros_like(x)
    launch(kernels.softmax, 7, x, out, columns, BLOCK=1024)
    powers = np.exp(x - x.max(1, keepdims=True))
    assert_near(out, powers / powers.sum(1, keepdims=True), 1e-6)


def philox(counter, seed):
    """The first 32 bits that Philox 4x32 makes of each counter."""
    words = [counter.astype("u8"), *np.zeros((3, counter.size), "u8")]
    keys = np.array([seed, 0], "u4")
    for _ in range(10):
        first, third = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [
            third >> 32 ^ words[1] ^ keys[0],
            third & 0xFFFFFFFF,
            first >> 32 ^ words[3] ^ keys[1],
            first & 0xFFFFFFFF,
        ]
        keys = keys + np.array([0x9E3779B9, 0xBB67AE85], "u4")
    return words[0].astype("u4")


def test_dropout():
    x, keep, seed = random(1000), 0.75, 1234
    out = np.zeros_like(x)
    launch(kernels.dropout, 4, x, out, x.size, keep, seed, BLOCK=256)
    bits = philox(np.arange(x.size), seed).view("i4")
    uniform = np.where(bits < 0, ~bits, bits).astype("f4") * np.float32(4.6566127342e-10)
    assert_near(out, np.where(uniform < keep, x / np.float32(keep), 0), 1e-6)


def test_arc_sine():
    x = np.linspace(-1, 1, 1000, dtype="f4")
    out = np.zeros_like(x)
    launch(kernels.arc_sine, 4, x, out, x.size, BLOCK=256)
    assert_near(out, np.arcsin(x), 1e-6)


def test_layer_norm():
    rows, columns, epsilon = 6, 300, 1e-5
    x, weight, bias = random(rows, columns), random(columns, seed=1), random(columns, seed=2)
    out, mean, inverse = np.zeros_like(x), np.zeros(rows, "f4"), np.zeros(rows, "f4")
    launch(
        *(kernels.layer_norm, rows, x, weight, bias, out, mean, inverse, columns, epsilon),
        BLOCK=512,
    )
    wide = x.astype("f8")
    unit = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + epsilon)
    assert_near(out, unit * weight + bias, 1e-5)

    slope = random(rows, columns, seed=3)
    dx, dweight, dbias = np.zeros_like(x), np.zeros_like(weight), np.zeros_like(bias)
    lock = np.zeros(1, "i4")
    launch(
        *(kernels.layer_norm_back, rows, slope, x, weight, mean, inverse, dx, dweight, dbias),
        *(lock, columns),
        BLOCK=512,
    )
    weighted = (slope * weight).astype("f8")
    means = [(part).mean(1, keepdims=True) for part in (unit * weighted, weighted)]
    assert_near(dx, (weighted - (unit * means[0] + means[1])) * inverse[:, None], 1e-5)
    assert_near(dweight, (slope * unit).sum(0), 1e-5)
    assert_near(dbias, slope.sum(0), 1e-5)


def test_running_sum():
    x = np.random.default_rng(0).integers(-9, 9, (5, 700), "i4")
    out = np.zeros_like(x)
    launch(kernels.running_sum, 5, x, out, 700, BLOCK=1024)
    assert (out == x.cumsum(1)).all()


def test_sort():
    x = random(4 * 256)
    out = np.zeros_like(x)
    launch(kernels.sort, 4, x, out, BLOCK=256)
    assert (out.reshape(4, 256) == np.sort(x.reshape(4, 256))).all()


def test_largest():
    x, out = random(9, 777), np.zeros(9, "i4")
    launch(kernels.largest, 9, x, out, 777, BLOCK=1024)
    assert (out == x.argmax(1)).all()


def test_histogram():
    x, out = np.random.default_rng(0).integers(0, 64, 5000, "i4"), np.zeros(64, "i4")
    launch(kernels.histogram, 5, x, out, x.size, BINS=64, BLOCK=1024)
    assert (out == np.bincount(x, minlength=64)).all()


def bfloats(x):
    """The upper halves of numbers whose lower halves are 0."""
    return (x.view("u4") >> 16).astype("u2")


def whole(*shape, seed=0, limit=8, dtype="f4"):
    """Small whole numbers: all types here represent their products and sums exactly."""
    return np.random.default_rng(seed).integers(-limit, limit + 1, shape).astype(dtype)


def e5m2(x):
    """Floats of 8 bits with 5 of exponent: a half's upper byte."""
    return (x.astype("f2").view("u2") >> 8).astype("u1")


def e4m3(x):
    """Floats of 8 bits with 4 of exponent, whose bias is 8 less than a half's."""
    bits = x.astype("f2").view("u2")
    small = np.where(x == 0, 0, ((bits & 0x7FFF) >> 7) - (8 << 3))
    return (bits >> 8 & 0x80 | small).astype("u1")


FORMS = {
    "fp16": ("fp16", lambda x: x.astype("f2"), "f4", 8, 64),
    "bf16": ("bf16", bfloats, "f4", 8, 64),
    "e5m2": ("fp8e5", e5m2, "f4", 4, 128),
    "e4m3": ("fp8e4nv", e4m3, "f4", 8, 128),
    "tf32": ("fp32", lambda x: x, "f4", 8, 32),
    "int8": ("i8", lambda x: x.astype("i1"), "i4", 8, 128),
}


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_matmul(form, transposed, warps):
    """Products of whole numbers are exact. The sizes are no multiples of the tile sizes."""
    name, convert, of, limit, deep = FORMS[form]
    m, n, k = 200, 144, 3 * deep + 16
    a, b = whole(m, k, limit=limit), whole(k, n, limit=limit, seed=1)
    out = np.zeros((m, n), of)
    right = b.T.copy() if transposed else b
    launch(
        *(kernels.matmul, (2, 2), convert(a), convert(right), out, m, n, k, k, 1),
        *((1, k) if transposed else (n, 1)),
        types={"a": name, "b": name},
        uses="wgmma.mma_async",
        options={"num_warps": warps},
        **{"M": 128, "N": 128, "K": deep},
        OF=kernels.tl.int32 if of == "i4" else kernels.tl.float32,
    )
    assert (out == a @ b).all()


@pytest.mark.parametrize(("stages", "special"), [(1, False), (4, False), (3, True)])
def test_matmul_of_boxes(stages, special):
    m, n, k, programs = 256, 384, 320, 3
    a, b, out = whole(m, k, dtype="f2"), whole(n, k, dtype="f2", seed=1), np.zeros((m, n), "f2")
    launch(
        *(kernels.matmul_of_boxes, programs, a, b, out, m, n, k),
        uses="cp.async.bulk.tensor",
        options={"num_stages": stages},
        **{"M": 128, "N": 128, "K": 64, "PROGRAMS": programs, "SPECIAL": special},
    )
    assert (out == (a.astype("f4") @ b.T.astype("f4")).astype("f2")).all()


def test_matmul_of_a_cluster():
    """A cluster of two blocks makes each tile."""
    m, n, k = 128, 128, 192
    a, b, out = whole(m, k, dtype="f2"), whole(k, n, dtype="f2", seed=1), np.zeros((m, n), "f4")
    launch(
        *(kernels.matmul, 1, a, b, out, m, n, k, k, 1, n, 1),
        uses="cluster_ctarank",
        options={"num_ctas": 2},
        **{"M": 128, "N": 128, "K": 64, "OF": kernels.tl.float32},
    )
    assert (out == a.astype("f4") @ b.astype("f4")).all()


def test_grouped_matmul():
    sizes = [(128, 64, 64), (64, 192, 128), (128, 128, 32)]
    lefts = [whole(m, k, dtype="f2") for m, n, k in sizes]
    rights = [whole(k, n, dtype="f2", seed=1) for m, n, k in sizes]
    buffers = [[cu.DeviceBuffer.from_array(each) for each in side] for side in (lefts, rights)]
    outs = [cu.zeros((m, n), "f4") for m, n, k in sizes]
    addresses = [np.array([each.address for each in side], "i8") for side in (*buffers, outs)]
    launch(
        *(kernels.grouped_matmul, 4, *addresses, np.array(sizes, "i4").ravel(), len(sizes)),
        uses="wgmma.mma_async",
        borrows=[*buffers[0], *buffers[1], *outs],
        **{"M": 64, "N": 64, "K": 32, "PROGRAMS": 4},
    )
    for left, right, out in zip(lefts, rights, outs, strict=True):
        assert (out.to_numpy() == left.astype("f4") @ right.astype("f4")).all()


def attention_of(q, k, v, scale, causal=False):
    scores = q @ k.swapaxes(1, 2) * scale
    if causal:
        scores = np.where(np.tri(scores.shape[1], dtype=bool), scores, -np.inf)
    most = scores.max(2, keepdims=True)
    powers = np.exp(scores - most)
    total = powers.sum(2, keepdims=True)
    return powers / total @ v, (most + np.log(total))[..., 0] / np.log(2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [64, 128])
def test_attention(width, causal):
    heads, length, scale = 2, 256, width**-0.5
    q, k, v = (random(heads, length, width, dtype="f2", seed=seed) for seed in range(3))
    out, logs = np.zeros(q.shape, "f4"), np.zeros((heads, length), "f4")
    launch(
        *(kernels.attention, (2, heads), q, k, v, out, logs, scale / float(np.log(2)), length),
        uses="wgmma.mma_async",
        options={"num_warps": 8 if width == 128 else 4},
        **{"M": 128, "N": 64, "WIDTH": width, "CAUSAL": causal},
    )
    wanted = attention_of(*(each.astype("f8") for each in (q, k, v)), scale, causal)
    assert_near(out, wanted[0], 2e-3)
    assert_near(logs, wanted[1], 1e-4)


def test_attention_back():
    heads, length, width, scale = 2, 128, 64, 0.125
    halves = [random(heads, length, width, dtype="f2", seed=seed) for seed in range(4)]
    q, k, v, slope = (each.astype("f8") for each in halves)
    out, logs = attention_of(q, k, v, scale)
    delta = (out * slope).sum(2)
    dk, dv = np.zeros(k.shape, "f4"), np.zeros(v.shape, "f4")
    launch(
        *(kernels.attention_back, (2, heads), *halves, logs.astype("f4"), delta.astype("f4")),
        *(dk, dv, scale / float(np.log(2)), length),
        uses="wgmma.mma_async",
        **{"M": 64, "N": 64, "WIDTH": width},
    )
    powers = np.exp2(q @ k.swapaxes(1, 2) * scale / np.log(2) - logs[..., None])
    change = powers * (slope @ v.swapaxes(1, 2) - delta[..., None])
    assert_near(dv, powers.swapaxes(1, 2) @ slope, 5e-3)
    assert_near(dk, change.swapaxes(1, 2) @ q * scale, 5e-3)
