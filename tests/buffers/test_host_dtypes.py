"""All dtypes of buffers, with all kinds of access by the host."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra import numpy as arrays

import cudadrv as cu

# One schedule suffices: the results do not depend on when GPU work runs.
pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)

PLAIN = [
    *("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "g", "F", "D", "G"),
    *(">i2", ">u4", ">i8", ">f4", ">f8", ">c8", "S1", "S7", "U1", "U5", ">U3", "V1", "V4", "V5"),
    *("M8[s]", "M8[ns]", ">M8[us]", "m8[s]", "m8[D]", ">m8[ns]", "m8"),
]
PAIR = [("a", "u1"), ("b", "f4")]
STRUCTURED = {
    "packed": np.dtype(PAIR),
    "aligned": np.dtype(PAIR, align=True),
    "padded at the end": np.dtype({"names": ["a"], "formats": ["i4"], "itemsize": 16}),
    "padded between": np.dtype({"names": ["a", "b"], "formats": ["u1", "u1"], "offsets": [0, 5]}),
    "overlapping": np.dtype({"names": ["a", "b"], "formats": ["i4", "u2"], "offsets": [0, 2]}),
    "out of order": np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [4, 0]}),
    "nested": np.dtype([("a", PAIR), ("b", "u1")]),
    "nested and padded": np.dtype(
        [("a", np.dtype({"names": ["x"], "formats": ["i2"], "itemsize": 6})), ("b", "u1")]
    ),
    "array": np.dtype([("a", "i2", (2, 3)), ("b", "u1")]),
    "array of padded": np.dtype(
        [("a", np.dtype({"names": ["x"], "formats": ["i2"], "itemsize": 6}), 2)]
    ),
    "times": np.dtype([("when", "M8[s]"), ("value", "f4")]),
    "texts": np.dtype([("name", "S3"), ("other", "U2")]),
    "titles": np.dtype([(("a title", "a"), "i4")]),
    "no fields": np.dtype({"names": [], "formats": [], "itemsize": 8}),
    "big-endian": np.dtype([("a", ">i4"), ("b", "<f8")]),
}
DTYPES = {name: np.dtype(name) for name in PLAIN} | STRUCTURED

kinds = pytest.mark.parametrize("kind", ["locked", "unified"])
dtypes = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)


def bytes_of(array):
    """All bytes of an array, including the padding between fields."""
    return np.ndarray(array.nbytes, "u1", np.ascontiguousarray(array)).tobytes()


def shown(array):
    """The items of an array as text. Tests compare texts, because `==` depends on the dtype."""
    return repr(array.tolist())


def valid_items(dtype, count=4):
    """Items in which the padding bytes are not zero."""
    if dtype.char in "gG":  # not all bytes are valid numbers
        return np.arange(count).astype(dtype)
    data = bytes([1, 0] * (count * dtype.itemsize))[: count * dtype.itemsize]
    return np.ndarray(count, dtype, bytearray(data))


def check_memoryview(buffer, dtype):
    """A memoryview of the buffer has the format of the dtype, or is refused if there is none."""
    try:
        view = memoryview(np.empty(0, dtype))
        has_format = np.asarray(view).dtype == dtype
    except (ValueError, BufferError, RuntimeError):
        has_format = False
    if has_format:
        with memoryview(buffer) as view:
            assert view.format == memoryview(np.empty(0, dtype)).format
            assert view.nbytes == buffer.nbytes
    else:
        with pytest.raises(BufferError, match="no format"):
            memoryview(buffer)


def check_every_way(buffer, items):
    dtype, data = items.dtype, bytes_of(items)
    buffer.view("u1")[:] = np.frombuffer(data, "u1")
    ways = {
        "asarray": np.asarray,
        "asarray, read-only": lambda buffer: np.asarray(buffer.readonly()),
        "__array__": lambda buffer: buffer.__array__(),
        "array": np.array,
        "to_numpy": lambda buffer: buffer.to_numpy(),
    }
    for name, way in ways.items():
        array = way(buffer)
        assert type(array) is np.ndarray
        assert array.dtype == dtype, name
        assert array.shape == (buffer.count,), name
        if name != "array":  # NumPy copies the fields without the padding
            assert bytes_of(array) == data, name
        del array
    for way in (buffer.read, buffer.write):
        with way() as array:
            assert array.dtype == dtype
            assert bytes_of(array) == data
    assert bytes(buffer) == bytes(buffer.readonly()) == data
    assert bytes(memoryview(buffer.view("u1"))) == data
    check_memoryview(buffer, dtype)
    assert bytes_of(buffer[1:3].to_numpy()) == bytes_of(items[1:3])
    item = buffer[1]
    assert repr(item) == repr(items[1])
    buffer.view("u1").fill(0)
    buffer[:] = items
    buffer[1] = item
    assert shown(buffer.to_numpy()) == shown(items)
    with buffer.write() as array:
        array[:] = items[::-1]
    assert shown(buffer.to_numpy()[::-1]) == shown(items)
    assert not buffer.borrowed
    buffer.view("u1").fill_async(0, cu.Stream()).wait()


@kinds
@dtypes
def test_every_way(make, kind, dtype):
    buffer = make(kind, 4, dtype)
    check_every_way(buffer, valid_items(dtype))
    buffer.close()


@dtypes
def test_copies(make, items_of, stream, dtype):
    items = valid_items(dtype)
    for kind in ("device", "locked", "unified"):
        buffer = make(kind, 4, dtype)
        buffer.copy_from(items)
        assert bytes_of(items_of(buffer)) == bytes_of(items)
        buffer.copy_from_async(items[::-1].copy(), stream).wait()
        assert shown(items_of(buffer)) == shown(items[::-1])


def can_live_in_a_buffer(dtype):
    return dtype.itemsize and not dtype.hasobject and dtype.subdtype is None


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(dtype=arrays.nested_dtypes(max_itemsize=64).filter(can_live_in_a_buffer))
def test_generated_dtypes(make, dtype):
    buffer = make("locked", 4, dtype)
    check_every_way(buffer, np.zeros(4, dtype))
    buffer.close()


def test_an_array_over_memory_in_use_is_refused(make, stream, gate):
    """`np.asarray` is refused while the GPU uses the memory.

    NumPy calls ``__array__`` here, because the dtype has no buffer format.
    """
    buffer, device = make("locked", 4, "M8[s]"), make("device", 4, "M8[s]")
    gate.hold(stream)
    buffer.copy_to_async(device, stream)
    with pytest.raises(cu.BufferBorrowedError, match="cannot write"):
        np.asarray(buffer)
    array = np.asarray(buffer.readonly())
    assert array.dtype == "M8[s]"
    with pytest.raises(ValueError):
        array[0] = 0
    gate.open()
    stream.synchronize()
    with pytest.raises(cu.BufferExportedError):
        buffer.close()
    del array
    buffer.close()
