"""The kernels of examples/kernels give the same results as NumPy, on all drivers."""

import math

import numpy as np
import pytest

import cudadrv as cu

# One item; sizes next to the sizes of a warp and of a block; a size of several blocks that is no
# multiple of the block size.
SIZES = [1, 31, 33, 255, 256, 257, 1000]
FLOATS = np.finfo("f4")
SPECIAL = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, FLOATS.max, FLOATS.min, FLOATS.tiny, 1e-40, -1e-45], "f4"
)


def random(*shape: int) -> np.ndarray:
    """Random floats from -1 to 1, which are the same in each run."""
    return np.random.default_rng(5).uniform(-1, 1, shape).astype("f4")


# ---- saxpy ----


@pytest.mark.parametrize("size", SIZES)
def test_saxpy(example, size):
    x, y = random(2, size)
    expected = (np.float64(np.float32(0.7)) * x + y).astype("f4")
    actual = example("saxpy").saxpy(np.float32(0.7), x, y)
    np.testing.assert_array_max_ulp(actual, expected, 1)


def test_saxpy_of_special_values(example):
    x, y = (grid.ravel().copy() for grid in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(invalid="ignore", over="ignore"):
        expected = (2 * x.astype("f8") + y).astype("f4")
    np.testing.assert_array_equal(example("saxpy").saxpy(2, x, y), expected)


# ---- histogram ----


@pytest.mark.parametrize("size", [1, 15, 16, 17, 1000, 40_001])
def test_histogram(example, size):
    data = np.random.default_rng(1).integers(0, 256, size, "u1")
    actual = example("histogram").histogram(data, chunk=10_000)
    np.testing.assert_array_equal(actual, np.bincount(data, minlength=256))


@pytest.mark.parametrize("value", [0, 127, 128, 255])
def test_histogram_of_one_value(example, value):
    data = np.full(5000, value, "u1")
    np.testing.assert_array_equal(
        example("histogram").histogram(data), np.bincount(data, minlength=256)
    )


@pytest.mark.parametrize("first", [1, 7, 15])
@pytest.mark.parametrize("size", [1, 16, 100])
def test_histogram_from_any_address(ptx, stream, first, size):
    data = np.arange(200, dtype="u1")
    buffer, bins = cu.DeviceBuffer.from_array(data), cu.DeviceBuffer.zeros(256, "u8")
    part = cu.read(buffer[first : first + size])
    ptx("histogram")["histogram"].launch(2, 32, part, size, bins, stream=stream)
    actual = np.empty(256, "u8")
    bins.copy_to(actual, stream=stream)
    np.testing.assert_array_equal(actual, np.bincount(data[first : first + size], minlength=256))


# ---- matrices ----


@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 16, 16), (17, 15, 33), (1, 50, 2), (40, 3, 40)])
def test_matmul(example, shape):
    rows, inner, columns = shape
    a, b = random(rows, inner), random(inner, columns)
    actual = example("matmul").matmul(a, b)
    np.testing.assert_allclose(actual, a.astype("f8") @ b, rtol=1e-5, atol=1e-6)


def test_matmul_of_whole_numbers_is_exact(example):
    a, b = np.arange(400, dtype="f4").reshape(20, 20), np.eye(20, dtype="f4")[::-1].copy()
    np.testing.assert_array_equal(example("matmul").matmul(a, b), a @ b)


def test_matmul_with_special_values(example):
    """A NaN and an infinity change the results of their own rows only."""
    a, b = np.ones((18, 5), "f4"), np.ones((5, 18), "f4")
    a[3, 2], a[17, 4] = np.nan, np.inf
    expected = np.full((18, 18), 5, "f4")
    expected[3], expected[17] = np.nan, np.inf
    np.testing.assert_array_equal(example("matmul").matmul(a, b), expected)


@pytest.mark.parametrize("shape", [(1, 1), (32, 32), (33, 31), (1, 100), (100, 1), (70, 5)])
def test_transpose(example, shape):
    matrix = np.arange(math.prod(shape), dtype="f4").reshape(shape)
    np.testing.assert_array_equal(example("transpose").transpose(matrix), matrix.T)


def test_transpose_moves_every_bit(example):
    matrix = np.resize(SPECIAL, (6, 7))
    actual = example("transpose").transpose(matrix)
    np.testing.assert_array_equal(actual.view("u4"), matrix.T.copy().view("u4"))


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (2, 3), (8, 16), (19, 33)])
def test_convolution(example, shape):
    image, weights = random(*shape), random(5, 5)
    rows, columns = shape
    padded = np.pad(image, 2, mode="edge").astype("f8")
    expected = sum(
        weights[i, j] * padded[i : i + rows, j : j + columns] for i in range(5) for j in range(5)
    )
    actual = example("convolution").convolve(image, weights)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


# ---- reductions and scans ----


@pytest.mark.parametrize("size", [*SIZES, 64 * 128, 64 * 128 + 77])
@pytest.mark.parametrize("dtype", ["i4", "f4"])
def test_reduce(example, dtype, size):
    # Integers: their sums are exact in float32, too.
    data = np.random.default_rng(2).integers(-99, 99, size).astype(dtype)
    assert example("reduce").reduce(data) == data.sum()


def test_reduce_wraps_around(example):
    data = np.full(5, np.iinfo("i4").max, "i4")
    assert example("reduce").reduce(data) == data.sum(dtype="i4")


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_reduce_of_special_values(example, special):
    data = random(300)
    data[111] = special
    np.testing.assert_array_equal(example("reduce").reduce(data), np.float32(special))


@pytest.mark.parametrize("size", [*SIZES, 256 * 256 + 1])
def test_scan(example, size):
    data = np.random.default_rng(3).integers(-(2**31), 2**31, size, "i4")
    np.testing.assert_array_equal(example("scan").scan(data), np.cumsum(data, dtype="i4"))


# ---- sort ----


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 1024, 1025, 5000])
def test_bitonic_sort(example, size):
    data = np.random.default_rng(4).integers(-(2**31), 2**31, size, "i4")
    np.testing.assert_array_equal(example("bitonic").bitonic_sort(data), np.sort(data))


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(3000, "i4"),
        np.arange(3000, dtype="i4"),
        np.arange(3000, 0, -1, dtype="i4"),
        np.tile(np.array([2**31 - 1, -(2**31)], "i4"), 1100),
    ],
    ids=["equal", "sorted", "reversed", "extremes"],
)
def test_bitonic_sort_of_special_orders(example, data):
    np.testing.assert_array_equal(example("bitonic").bitonic_sort(data), np.sort(data))


# ---- arithmetic ----


def steps_of(c: complex, most: int) -> int:
    x = y = 0.0
    for step in range(most):
        if x * x + y * y > 4:
            return step
        x, y = x * x - y * y + c.real, (x + x) * y + c.imag
    return most


@pytest.mark.parametrize("shape", [(1, 1), (3, 70), (21, 33)])
def test_mandelbrot(example, shape):
    rows, columns = shape
    place = (-2.2, 1.3, 0.09, 60)
    actual = example("mandelbrot").mandelbrot(rows, columns, *place)
    np.testing.assert_array_equal(actual, steps_at(rows, columns, *place))


def test_mandelbrot_where_every_bit_counts(example):
    """A deep zoom into the border of the set: one wrongly rounded product changes the picture."""
    place = (-0.743643887037151, 0.131825904205330, 1e-11, 2000)
    actual = example("mandelbrot").mandelbrot(8, 8, *place)
    expected = steps_at(8, 8, *place)
    assert len(np.unique(expected)) > 8
    np.testing.assert_array_equal(actual, expected)


def steps_at(rows, columns, left, top, distance, most):
    return [
        [steps_of(complex(left + x * distance, top - y * distance), most) for x in range(columns)]
        for y in range(rows)
    ]


def prices(shares, strikes, years, rate, volatility):
    """Prices that are computed in float64."""
    normal = np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2, otypes=["f8"])
    shares, strikes, years = (array.astype("f8") for array in (shares, strikes, years))
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = volatility * np.sqrt(years)
        d1 = (np.log(shares / strikes) + (rate + volatility**2 / 2) * years) / deviation
        d2 = d1 - deviation
    discounted = strikes * np.exp(-rate * years)
    calls = shares * normal(d1) - discounted * normal(d2)
    return calls, discounted * normal(-d2) - shares * normal(-d1)


@pytest.mark.parametrize("size", [1, 127, 129, 1000])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 2e-6), ("f8", 1e-14)])
def test_black_scholes(example, dtype, tolerance, size):
    random = np.random.default_rng(6)
    ranges = [(5, 100), (1, 100), (0.25, 10)]
    options = [random.uniform(*limits, size).astype(dtype) for limits in ranges]
    actual = example("black_scholes").black_scholes(*options, 0.02, 0.3)
    for one, other in zip(actual, prices(*options, 0.02, 0.3), strict=True):
        assert one.dtype == dtype
        # A price is a difference of two numbers up to 100, so the error is relative to 100.
        np.testing.assert_allclose(one, other, rtol=0, atol=100 * tolerance)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_black_scholes_at_its_limits(example, dtype):
    """Limits of the formula: no time left, a share without value, NaN, infinite time.

    With no time left, options are in the money, out of it and at it.
    """
    shares = np.array([110, 90, 100, 0, np.nan, 100], dtype)
    strikes = np.array([100, 100, 100, 100, 100, 100], dtype)
    years = np.array([0, 0, 0, 1, 1, np.inf], dtype)
    actual = example("black_scholes").black_scholes(shares, strikes, years, 0.0625, 0.25)
    for one, other in zip(actual, prices(shares, strikes, years, 0.0625, 0.25), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def nbody_step(bodies, velocities, seconds):
    apart = bodies[None, :, :3] - bodies[:, None, :3]
    cubes = ((apart**2).sum(axis=2) + 1e-3) ** -1.5
    velocities[:, :3] += seconds * (apart * (cubes * bodies[:, 3])[..., None]).sum(axis=1)
    bodies[:, :3] += seconds * velocities[:, :3]


@pytest.mark.parametrize("count", [1, 63, 65, 150])
@pytest.mark.parametrize("steps", [1, 4])
def test_nbody(example, count, steps):
    bodies, velocities = random(2, count, 4)
    expected = bodies.astype("f8"), velocities.astype("f8")
    actual = example("nbody").nbody(bodies, velocities, 0.01, steps)
    for _ in range(steps):
        nbody_step(*expected, 0.01)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)
    # The masses and the unused fourth items of the velocities stay unchanged.
    np.testing.assert_array_equal(actual[0][:, 3], bodies[:, 3])
    np.testing.assert_array_equal(actual[1][:, 3], velocities[:, 3])


def collatz(number: int) -> int:
    steps = 0
    while number > 1:
        number = 3 * number + 1 if number % 2 else number // 2
        steps += 1
    return steps


@pytest.mark.parametrize(("size", "blocks"), [(1, 1), (129, 1), (600, 2), (600, 9)])
def test_collatz(example, size, blocks):
    numbers = np.arange(size, dtype="u4")
    numbers[-1] = 113_383  # an intermediate number is above 2**31
    expected = [collatz(int(number)) for number in numbers]
    np.testing.assert_array_equal(example("collatz").collatz(numbers, blocks), expected)


# ---- the host and a kernel at the same time ----


@pytest.mark.parametrize("size", [1, 32, 100])
def test_kernel_that_waits_for_the_host(example, size):
    data = np.arange(size, dtype="i4") - 7
    np.testing.assert_array_equal(example("spin").double_when_told(data), 2 * data)


def test_only_what_is_shared_is_free_to_the_host(ptx, stream):
    flag = cu.LockedBuffer.zeros(1, "u4", name="flag")
    numbers = cu.LockedBuffer.from_array(np.arange(4, dtype="i4"), name="numbers")
    kernel = ptx("spin")["wait_then_double"]
    done = kernel.launch(1, 32, cu.shared(flag), numbers, 4, stream=stream)
    try:
        with pytest.raises(cu.BufferBorrowedError, match="'numbers'"):
            numbers[0] = 1
        with pytest.raises(cu.BufferBorrowedError, match="'flag'"):
            flag.close()
        # The kernel waits for the flag, however long it runs.
        assert not any(done.done for _ in range(200))
    finally:
        flag[0] = 1  # otherwise the kernel would never end, and neither would the test run
        done.wait()
    assert numbers.to_numpy().tolist() == [0, 2, 4, 6]
