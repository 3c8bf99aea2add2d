"""Fills of every dtype; refused values and dtypes."""

import gc

import numpy as np
import pytest

import cudadrv as cu

KINDS = ("device", "stream_ordered", "locked", "unified")
kinds = pytest.mark.parametrize("kind", KINDS)
PAIR = np.dtype([("a", "i2"), ("b", "u1")], align=True)
TRIPLE = np.dtype([("a", "f8"), ("b", "i4")], align=True)  # 16 bytes, 4 of them padding
FILLS = [
    ("?", True), ("i1", -128), ("u1", 255), ("i2", -1), ("u2", 65535), ("i4", -(2**31)),
    ("u4", 2**32 - 1), ("i8", -(2**63)), ("u8", 2**64 - 1), ("f2", 0.5), ("f4", -0.0),
    ("f4", np.float32("nan")), ("f8", -0.0), ("f8", float("inf")), ("f8", 1), ("c8", 1 - 2j),
    ("c8", 3), (">i4", 1), (">f8", 1.5), ("S1", b"x"), ("S8", b"abc"), ("U1", "x"),
    ("V4", np.void(b"abcd")), ("M8[s]", np.datetime64("2020-02-02", "s")),
    ("M8[s]", np.datetime64("NaT", "s")), ("m8[us]", np.timedelta64(5, "s")),
    (PAIR, (-2, 3)), (PAIR, np.zeros((), PAIR)),
    ("c16", 1 - 2j), ("c16", 0), ("f4,f8", (1.5, -0.25)), ("f4,f4,f4", (1.0, 2.0, 3.0)),
    ("u4,u4,u4,u4", (7, 7, 7, 7)), ("S12", b"abcdefg"), ("U4", "wide"), ("V16", np.void(b"x" * 16)),
    ("V20", np.void(b"x" * 20)), ("V3", np.void(b"xxx")), (TRIPLE, (1.5, -1)),
    ("i4", np.array(7)), ("f4", np.float64(0.1)), ("i8", np.bool_(True)),
]  # fmt: skip


def expected(count, dtype, value):
    items = np.zeros(count, dtype)
    items[...] = value
    return items


def patterned(count, dtype):
    """Items with a byte pattern that no fill of this test writes."""
    if np.dtype(dtype).kind in "U?":  # not every bit pattern is a valid item
        return np.zeros(count, dtype)
    return np.full(count * np.dtype(dtype).itemsize, 0xA5, "u1").view(dtype)


@kinds
def test_every_bit_is_set(make, items_of, stream, kind):
    ways = (
        lambda buffer, value: buffer.fill(value),
        lambda buffer, value: buffer.fill(value, stream=stream),
        lambda buffer, value: buffer.fill_async(value, stream).wait(),
    )
    for dtype, value in FILLS:
        for fill in ways:
            buffer = make(kind, 21, dtype, patterned(21, dtype))
            fill(buffer, value)
            found = items_of(buffer)
            assert found.tobytes() == expected(21, dtype, value).tobytes(), (dtype, value)
            assert not buffer.borrowed


def test_the_value_and_the_dtype_both_count(make, items_of, stream):
    """The item of the last fill is cached. The cache compares both the value and the dtype."""
    one, half, wide = 1, 0.5, 300
    buffers = {dtype: make("device", 3, dtype) for dtype in ("u1", "i8", "f4", "f8", ">i4")}
    steps = [("u1", one), ("u1", one), ("i8", one), ("f4", one), ("f4", half), ("f8", half)]
    steps += [("f8", -0.0), ("f8", 0.0), ("f8", one), (">i4", one), ("i8", wide), ("i8", one)]
    for dtype, value in steps:
        buffers[dtype].fill_async(value, stream)
        stream.synchronize()
        found = items_of(buffers[dtype])
        assert found.tobytes() == expected(3, dtype, value).tobytes(), (dtype, value)
    buffers["i8"].fill_async(wide, stream)
    with pytest.raises(ValueError, match="300"):
        buffers["u1"].fill_async(wide, stream)


def test_a_fill_in_the_middle_of_another_is_its_own(make, items_of, stream):
    """A fill runs while another fill updates the cache of the last item.

    The inner fill is called by the finalizer of the old cached dtype.
    """
    whole, real = make("device", 2, "i4"), make("device", 2, "f4")

    class Last:
        def __del__(self):
            whole.fill_async(7, stream)

    make("device", 2, np.dtype("u1", metadata={"last": Last()})).fill_async(1, stream)
    gc.collect()
    real.fill_async(0.5, stream)
    for _ in range(2):
        whole.fill_async(7, stream)
        real.fill_async(0.5, stream)
        stream.synchronize()
        assert items_of(whole).tolist() == [7, 7]
        assert items_of(real).tolist() == [0.5, 0.5]
        whole.fill_async(7, stream)
        whole.fill_async(7, stream).wait()
        assert items_of(whole).tolist() == [7, 7]


def test_a_fill_in_the_middle_of_another_leaves_it_its_dtype(make, items_of, stream):
    """A fill runs while another fill updates the cache of the last dtype.

    The inner fill is called by the finalizer of the old cached dtype.
    """
    whole, real = make("device", 2, "i4"), make("device", 2, "f4")

    class Last:
        def __del__(self):
            whole.fill_async(9, stream)

    real.fill_async(0.5, stream)  # caches an item that differs from those of later fills
    # The item of a NumPy value is not cached, so the next fill caches only its dtype.
    of_short_life = cu.DeviceBuffer(2, np.dtype("u1", metadata={"last": Last()}))
    of_short_life.fill_async(np.uint8(1), stream)
    stream.synchronize()
    of_short_life.close()
    del of_short_life
    gc.collect()
    real.fill_async(3, stream)
    stream.synchronize()
    assert items_of(real).tolist() == [3, 3]
    assert items_of(whole).tolist() == [9, 9]


@kinds
def test_a_part_is_filled_and_nothing_else(make, items_of, stream, kind):
    buffer = make(kind, 10, "f8", np.arange(10.0))
    buffer[3:5].fill_async(-1.25, stream).wait()
    assert items_of(buffer).tolist() == [0, 1, 2, -1.25, -1.25, 5, 6, 7, 8, 9]


REFUSED = [
    ("i1", 128, ValueError), ("u1", -1, ValueError), ("u1", 256, ValueError),
    ("i4", 2**31, ValueError), ("u8", 2**64, ValueError), ("i1", np.int64(300), ValueError),
    ("i1", np.array(300), ValueError), ("f4", 10**400, ValueError), ("f4", 1e39, ValueError),
    ("f2", 65536, ValueError), ("c8", 1e39, ValueError), ("S1", b"xy", ValueError),
    ("i4", 1.5, TypeError), ("i4", float("nan"), TypeError), ("f4", 1j, TypeError),
    ("?", 2, TypeError), ("?", 0.0, TypeError), ("i4", "3", TypeError), ("i4", None, TypeError),
    ("S8", 5, TypeError), ("i4", [1], ValueError), ("i4", np.zeros(4, "i4"), ValueError),
    (PAIR, 3, TypeError), (PAIR, (1,), TypeError), (PAIR, (40000, 1), ValueError),
    (PAIR, (1.5, 1), TypeError), ("M8[s]", 1.5, TypeError),
]  # fmt: skip


@kinds
def test_what_does_not_fit_is_refused(make, items_of, stream, kind):
    for dtype, value, error in REFUSED:
        before = np.zeros(3, dtype)
        buffer = make(kind, 3, dtype, before)
        for call in (buffer.fill, lambda value, fill=buffer.fill_async: fill(value, stream)):
            try:
                call(value)
            except error:
                pass
            else:
                pytest.fail(f"{value!r} was filled into {dtype}")
        assert not buffer.borrowed
        assert items_of(buffer).tobytes() == before.tobytes()


@kinds
def test_long_doubles(make, items_of, stream, kind):
    """The last bytes of an item are padding, whose contents NumPy does not define."""
    third = np.longdouble(1) / 3
    buffer = make(kind, 5, "longdouble")
    for value in (third, -third, 2**80, 0, 0.5):
        for fill in (buffer.fill, lambda value: buffer.fill_async(value, stream).wait()):
            fill(value)
            assert (items_of(buffer) == np.longdouble(value)).all()


EVERY = ["?", "f2", "c16", "longdouble", "clongdouble", "V3", "S5", "U7", "M8[s]", "m8[ns]"]
EVERY += ["f8,i4", "u1,u1,u1", "V64", np.dtype([("pair", "f4", (2,)), ("inner", "i1,i8")])]


@kinds
def test_zero_for_every_dtype(make, stream, kind):
    for dtype in EVERY:
        buffer = make(kind, 7, dtype)
        for part, where in ((buffer, None), (buffer[1:6], stream)):
            buffer.view("u1").fill(0xFF)
            part.fill(0, stream=where)
            ones = buffer.view("u1").to_numpy() != 0
            assert ones.sum() == buffer.nbytes - part.nbytes, dtype
            assert not ones[buffer.itemsize : -buffer.itemsize].any()


def test_zero_at_odd_addresses(make, items_of, stream):
    whole = make("device", 17, "u1", np.full(17, 9, "u1"))
    whole[1:16].view("V5").fill_async(0, stream).wait()
    assert items_of(whole).tolist() == [9, *[0] * 15, 9]
    whole[1:17].view("V4").fill_async(np.void(b"bbbb"), stream).wait()
    assert bytes(items_of(whole)) == b"\t" + b"b" * 16


REFUSED_SIZES = [
    ("V3", np.void(b"abc")), ("S5", b"a"), ("U5", "x"), ("f8,i4,f8", (1, 2, 3)),
    ("clongdouble", 1.5), ("V64", np.void(bytes(range(64)))),
]  # fmt: skip


@kinds
@pytest.mark.parametrize(("dtype", "value"), REFUSED_SIZES)
def test_other_item_sizes_are_refused(make, stream, kind, dtype, value):
    buffer = make(kind, 3, dtype)
    with pytest.raises(TypeError, match=r"have .* bytes.* 12 or 16, or .*\. Copy from an array"):
        buffer.fill(value)
    with pytest.raises(TypeError, match=r"have .* bytes"):
        buffer.fill_async(value, stream)


@pytest.mark.parametrize("dtype", ["V2", "V4", "u2,u2", "V8"])
def test_items_at_odd_addresses(unchanged, stream, dtype):
    """A fill of items at odd addresses is refused: the driver does not support it.

    The dtypes themselves require no alignment.
    """
    odd = cu.DeviceBuffer(9)[1:9].view(dtype)
    value = np.arange(1, 1 + np.dtype(dtype).itemsize, dtype="u1").view(dtype)[0]
    for fill in (odd.fill, lambda value: odd.fill_async(value, stream)):
        with unchanged(""), pytest.raises(ValueError, match=r"only at multiples of [24]\. Copy"):
            fill(value)
    odd.copy_from(np.full(odd.count, value, dtype))


@pytest.mark.parametrize("kind", ["device", "locked", "unified"])
@pytest.mark.parametrize("dtype", ["f8", "f4,f4,f4", "c16"])
def test_large_fills_of_wide_items(make, stream, kind, dtype):
    """The device fills the first items, and copies them to the others."""
    dtype = np.dtype(dtype)
    value = (1.0, 2.0, 3.0) if dtype.names else 1.25
    for nbytes in (3 << 16, (3 << 16) - 48, 1_000_032, (3 << 18) + 48):
        count = nbytes // dtype.itemsize
        buffer = make(kind, count + 2, dtype, np.zeros(count + 2, dtype))
        buffer[1:-1].fill_async(value, stream)
        stream.synchronize()
        wanted = np.zeros(count + 2, dtype)
        wanted[1:-1] = value
        assert np.array_equal(buffer.to_numpy(), wanted)
