"""Kernels in Triton, of the kinds of its tutorials."""

import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values))
    tl.store(out + row * columns + at, powers / tl.sum(powers), inside)


@triton.jit
def dropout(x, out, n, keep, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n)
    kept = tl.rand(seed, at) < keep
    tl.store(out + at, tl.where(kept, values / keep, 0.0), at < n)


@triton.jit
def arc_sine(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, libdevice.asin(tl.load(x + at, at < n)), at < n)


@triton.jit
def layer_norm(x, weight, bias, out, mean, inverse, columns, epsilon, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, inside, other=0.0)
    middle = tl.sum(values) / columns
    apart = tl.where(inside, values - middle, 0.0)
    scale = 1 / tl.sqrt(tl.sum(apart * apart) / columns + epsilon)
    tl.store(mean + row, middle)
    tl.store(inverse + row, scale)
    scaled = apart * scale * tl.load(weight + at, inside) + tl.load(bias + at, inside)
    tl.store(out + row * columns + at, scaled, inside)


@triton.jit
def layer_norm_back(
    dy, x, weight, mean, inverse, dx, dweight, dbias, lock, columns, BLOCK: tl.constexpr
):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    scale = tl.load(inverse + row)
    unit = (tl.load(x + row * columns + at, inside, other=0.0) - tl.load(mean + row)) * scale
    unit = tl.where(inside, unit, 0.0)
    slope = tl.load(dy + row * columns + at, inside, other=0.0)
    weighted = slope * tl.load(weight + at, inside, other=0.0)
    first, second = tl.sum(unit * weighted) / columns, tl.sum(weighted) / columns
    tl.store(dx + row * columns + at, (weighted - (unit * first + second)) * scale, inside)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(dweight + at, tl.load(dweight + at, inside) + slope * unit, inside)
    tl.store(dbias + at, tl.load(dbias + at, inside) + slope, inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def running_sum(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, at < columns, other=0)
    tl.store(out + row * columns + at, tl.cumsum(values, 0), at < columns)


@triton.jit
def sort(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def largest(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, at < columns, other=-float("inf"))
    tl.store(out + row, tl.argmax(values, 0))


@triton.jit
def histogram(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, at < n, other=0), BINS, mask=at < n)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


@triton.jit
def matmul(
    a, b, out, m, n, k, a_row, a_column, b_row, b_column,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, OF: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    left = a + (rows % m)[:, None] * a_row + inner[None, :] * a_column
    right = b + inner[:, None] * b_row + (columns % n)[None, :] * b_column
    total = tl.zeros((M, N), OF)
    for done in range(0, k, K):
        x = tl.load(left, inner[None, :] < k - done, other=0.0)
        y = tl.load(right, inner[:, None] < k - done, other=0.0)
        total = tl.dot(x, y, total, out_dtype=OF)
        left += K * a_column
        right += K * b_row
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * n + columns[None, :], total, inside)


@triton.jit
def matmul_of_boxes(
    a, b, out, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PROGRAMS: tl.constexpr,
    SPECIAL: tl.constexpr,
):  # fmt: skip
    """A matrix product by tensor maps that the kernel makes. Its blocks take several tiles."""
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [M, K])
    right = tl.make_tensor_descriptor(b, [n, k], [k, 1], [N, K])
    result = tl.make_tensor_descriptor(out, [m, n], [n, 1], [M, N])
    across = tl.cdiv(n, N)
    tiles = tl.cdiv(m, M) * across
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, warp_specialize=SPECIAL):
        row, column = tile // across * M, tile % across * N
        total = tl.zeros((M, N), tl.float32)
        for done in range(0, k, K):
            x, y = left.load([row, done]), right.load([column, done])
            total = tl.dot(x, y.T, total)
        result.store([row, column], total.to(tl.float16))


@triton.jit
def grouped_matmul(
    lefts, rights, outs, sizes, groups,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Several matrix products, whose addresses and sizes are in memory."""
    tile, before = tl.program_id(0), 0
    for group in range(groups):
        m = tl.load(sizes + group * 3)
        n = tl.load(sizes + group * 3 + 1)
        k = tl.load(sizes + group * 3 + 2)
        across = tl.cdiv(n, N)
        tiles = tl.cdiv(m, M) * across
        a = tl.load(lefts + group).to(tl.pointer_type(tl.float16))
        b = tl.load(rights + group).to(tl.pointer_type(tl.float16))
        out = tl.load(outs + group).to(tl.pointer_type(tl.float32))
        while tile < before + tiles:
            rows = (tile - before) // across * M + tl.arange(0, M)
            columns = (tile - before) % across * N + tl.arange(0, N)
            total = tl.zeros((M, N), tl.float32)
            for done in range(0, k, K):
                inner = done + tl.arange(0, K)
                x = tl.load(a + rows[:, None] * k + inner[None, :])
                y = tl.load(b + inner[:, None] * n + columns[None, :])
                total = tl.dot(x, y, total)
            tl.store(out + rows[:, None] * n + columns[None, :], total)
            tile += PROGRAMS
        before += tiles


@triton.jit
def attention(
    q, k, v, out, logs, scale, length,
    M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Attention with a running maximum and sum of the powers. `scale` is for powers of two."""
    head = tl.program_id(1).to(tl.int64) * length * WIDTH
    rows, width = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, WIDTH)
    query = tl.load(q + head + rows[:, None] * WIDTH + width[None, :])
    most = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    mixed = tl.zeros((M, WIDTH), tl.float32)
    end = (tl.program_id(0) + 1) * M if CAUSAL else length
    for first in range(0, end, N):
        columns = first + tl.arange(0, N)
        key = tl.load(k + head + columns[None, :] * WIDTH + width[:, None])
        scores = tl.dot(query, key) * scale
        if CAUSAL:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, -float("inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        powers = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(most - higher)
        total = total * shrink + tl.sum(powers, 1)
        value = tl.load(v + head + columns[:, None] * WIDTH + width[None, :])
        mixed = tl.dot(powers.to(value.dtype), value, mixed * shrink[:, None])
        most = higher
    tl.store(out + head + rows[:, None] * WIDTH + width[None, :], mixed / total[:, None])
    tl.store(logs + tl.program_id(1) * length + rows, most + tl.log2(total))


@triton.jit
def attention_back(
    q, k, v, dout, logs, delta, dk, dv, scale, length,
    M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The derivatives of attention (not causal) with respect to keys and values."""
    head = tl.program_id(1).to(tl.int64) * length * WIDTH
    columns, width = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, WIDTH)
    here = head + columns[:, None] * WIDTH + width[None, :]
    key, value = tl.load(k + here), tl.load(v + here)
    for_key, for_value = tl.zeros((N, WIDTH), tl.float32), tl.zeros((N, WIDTH), tl.float32)
    for first in range(0, length, M):
        rows = first + tl.arange(0, M)
        query = tl.load(q + head + rows[None, :] * WIDTH + width[:, None])
        slope = tl.load(dout + head + rows[:, None] * WIDTH + width[None, :])
        row = tl.program_id(1) * length + rows
        powers = tl.exp2(tl.dot(key, query) * scale - tl.load(logs + row)[None, :])
        for_value = tl.dot(powers.to(slope.dtype), slope, for_value)
        change = powers * (tl.dot(value, slope.T) - tl.load(delta + row)[None, :])
        for_key = tl.dot(change.to(query.dtype), query.T, for_key)
    tl.store(dk + here, for_key * (scale * 0.6931471805599453))
    tl.store(dv + here, for_value)
