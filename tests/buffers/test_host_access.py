"""Access of the host to the bytes of LockedBuffer and UnifiedBuffer."""

import struct

import numpy as np
import pytest

import cudadrv as cu

kinds = pytest.mark.parametrize("kind", ["locked", "unified"])
COUNT = np.arange(8, dtype="i4")


@kinds
def test_items(make, kind):
    buffer = make(kind, 8, "i4", COUNT)
    assert buffer[0] == 0
    assert buffer[-1] == buffer[np.int64(7)] == 7
    assert isinstance(buffer[3], np.int32)
    buffer[2] = 20
    buffer[-2] = np.float64(60)
    assert list(buffer) == [0, 1, 20, 3, 4, 5, 60, 7]
    assert 20 in buffer
    for index in (8, -9, 2**70):
        with pytest.raises(IndexError):
            buffer[index]
        with pytest.raises(IndexError):
            buffer[index] = 0
    with pytest.raises(IndexError, match=r"too many indices: 2 for 1 dimension; .*reshape"):
        buffer[1, 2]
    with pytest.raises(TypeError, match=r"integers, slices and \.\.\., not list; .* mask, copy"):
        buffer[[1, 2]]
    for index in (1.0, "1", None, (None,), True):
        with pytest.raises(TypeError, match="indices are integers, slices"):
            buffer[index]


@kinds
def test_slices_take_arrays_and_scalars(make, kind):
    buffer = make(kind, 8, "i4", COUNT)
    buffer[2:4] = [10, 11]
    buffer[-2:] = np.array([20.0, 21.0])
    buffer[:1] = 5
    buffer[5:5] = []
    assert buffer.to_numpy().tolist() == [5, 1, 10, 11, 4, 5, 20, 21]
    with pytest.raises(ValueError):
        buffer[:3] = [1, 2]
    with pytest.raises((ValueError, TypeError)):
        buffer[0] = "x"
    with pytest.raises(OverflowError):
        buffer[0] = 2**40
    with pytest.raises(TypeError, match="copy_from"):
        buffer[:4] = buffer[4:]
    with pytest.raises(ValueError, match="step"):
        buffer[::2] = 0
    assert not buffer.borrowed


@kinds
def test_overlapping_views_are_copied_as_if_apart(make, kind):
    buffer = make(kind, 8, "i4", COUNT)
    view = np.asarray(buffer)
    buffer[2:8] = view[0:6]
    assert view.tolist() == [0, 1, 0, 1, 2, 3, 4, 5]


@kinds
@pytest.mark.parametrize("nbytes", [(1 << 18) + 1, (3 << 20) + 5])
def test_many_bytes(make, kind, nbytes):
    """Several threads copy many bytes, in both directions. The bytes beside them stay unchanged."""
    given = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype="u1")
    buffer = make(kind, nbytes + 2, "u1", np.zeros(nbytes + 2, "u1"))
    buffer[1:-1] = given
    assert buffer[0] == buffer[-1] == 0
    found = np.zeros(nbytes + 2, "u1")
    buffer[1:-1].copy_to(found[1:-1])
    assert np.array_equal(found[1:-1], given)
    assert found[0] == found[-1] == 0
    assert np.array_equal(buffer[1:-1].to_numpy(), given)
    assert not buffer.borrowed


@kinds
@pytest.mark.parametrize("shift", [-1, 1, 1 << 17])
def test_many_bytes_that_overlap(make, kind, shift):
    nbytes = 1 << 20
    given = np.random.default_rng(0).integers(0, 256, nbytes, dtype="u1")
    buffer = make(kind, nbytes, "u1", given)
    view = np.asarray(buffer)
    source = slice(shift, None) if shift > 0 else slice(None, shift)
    target = slice(None, -shift) if shift > 0 else slice(-shift, None)
    buffer[target] = view[source]
    expected = given.copy()
    expected[target] = given[source]
    assert np.array_equal(view, expected)


@kinds
def test_to_numpy_is_a_copy(make, stream, kind):
    buffer = make(kind, 8, "i4", COUNT)
    array = buffer.to_numpy()
    buffer.fill_async(0, stream).wait()
    assert (array == COUNT).all()
    assert array.flags.writeable


@kinds
def test_structured_items(make, kind):
    dtype = np.dtype([("a", "i4"), ("b", "S4")])
    buffer = make(kind, 3, dtype, np.zeros(3, dtype))
    buffer[1] = (5, b"x")
    assert buffer[1]["a"] == 5
    assert buffer.to_numpy()["b"].tolist() == [b"", b"x", b""]
    assert np.asarray(buffer).dtype == dtype


NESTED = np.dtype([("one", "i4"), ("pair", "f4", (2,)), ("inner", [("two", "i2")])])
RECORD = np.dtype((np.record, [("one", "i4"), ("pair", "f4", (2,)), ("inner", [("two", "i2")])]))


@kinds
@pytest.mark.parametrize("dtype", [NESTED, RECORD], ids=["void", "record"])
def test_fields_of_items_are_read_only(make, kind, dtype):
    """An item is a copy, so a change of a field would be lost."""
    buffer = make(kind, 3, dtype, np.zeros(3, dtype))
    ways = [
        lambda: buffer[1],
        lambda: buffer[np.int64(-2)],
        lambda: buffer[1:2][0],
        lambda: buffer.reshape(3, 1)[1, 0],
        lambda: list(buffer)[1],
        lambda: next(iter(buffer[1:])),
    ]
    changes = [
        lambda item: item.__setitem__("one", 5),
        lambda item: item.__setitem__(0, 5),
        lambda item: item["pair"].__setitem__(0, 5),
        lambda item: item["inner"].__setitem__("two", 5),
        lambda item: item.setfield(5, "i4", 0),
    ]
    if dtype is RECORD:
        changes.append(lambda item: setattr(item, "one", 5))
    for way in ways:
        for change in changes:
            with pytest.raises(ValueError, match="read-only"):
                change(way())
    assert memoryview(buffer[1]).readonly
    assert not any(bytes(buffer))
    assert not buffer.borrowed


@kinds
def test_ways_to_change_a_field(make, kind):
    buffer = make(kind, 3, NESTED, np.zeros(3, NESTED))
    item = buffer[1].copy()
    item["one"] = 5
    buffer[1] = item
    with buffer.write() as array:
        array["pair"][2, 0] = 7
        array[0]["inner"]["two"] = 9
    expected = np.array([(0, [0, 0], (9,)), (5, [0, 0], (0,)), (0, [7, 0], (0,))], NESTED)
    assert bytes(buffer) == expected.tobytes()


@kinds
def test_the_buffer_protocol(make, kind):
    buffer = make(kind, 8, "i4", COUNT)
    with memoryview(buffer) as view:
        assert (view.format, view.itemsize, view.shape, view.readonly) == ("i", 4, (8,), False)
        view[0] = 9
    assert bytes(buffer) == buffer.to_numpy().tobytes()
    assert np.frombuffer(buffer, "i4")[0] == 9
    struct.pack_into("i", buffer, 4, 77)
    assert buffer[1] == 77
    array = np.asarray(buffer)
    array[2] = 5
    assert buffer[2] == 5
    assert np.shares_memory(array, np.asarray(buffer))
    assert np.array(buffer).flags.owndata
    del array
    buffer.close()


@kinds
def test_exports_are_counted(make, stream, kind):
    buffer = make(kind, 8, "i4", COUNT)
    first, second = memoryview(buffer), np.asarray(buffer[2:4])
    for release in (first.release, None):
        with pytest.raises(cu.BufferExportedError):
            buffer.close()
        with pytest.raises(cu.BufferExportedError):
            buffer.fill_async(0, stream)
        if release:
            release()
    buffer[:2].fill_async(0, stream)
    del second
    buffer.fill_async(0, stream).wait()
    buffer.close()


@kinds
def test_read_only_exports(make, stream, kind):
    buffer = make(kind, 8, "i4", COUNT)
    shared = buffer.readonly()
    array = np.asarray(shared)
    assert not array.flags.writeable
    with pytest.raises(ValueError):
        array.flags.writeable = True
    assert memoryview(shared).readonly
    with pytest.raises((BufferError, TypeError)):
        struct.pack_into("i", shared, 0, 1)
    make("device", 8, "i4").copy_from_async(buffer, stream)
    assert bytes(shared) == COUNT.tobytes()
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, stream)


@kinds
def test_numpy_gets_the_error_and_no_copy(make, stream, gate, kind):
    """A conversion of a buffer in use raises BufferBorrowedError.

    NumPy must not swallow the error and copy the items one by one.
    """
    buffer, device = make(kind, 8, "i4", COUNT), make("device", 8, "i4")
    gate.hold(stream)
    buffer.copy_to_async(device, stream)
    for convert in (np.asarray, np.array, memoryview, bytes, lambda x: np.frombuffer(x, "i4")):
        with pytest.raises(cu.BufferBorrowedError, match="cannot write"):
            convert(buffer)
    assert (np.asarray(buffer.readonly()) == COUNT).all()
    buffer.fill_async(0, stream)
    for convert in (np.asarray, memoryview, bytes):
        with pytest.raises(cu.BufferBorrowedError, match="cannot read"):
            convert(buffer.readonly())
    gate.open()


@kinds
def test_array_conversion(make, kind):
    buffer = make(kind, 8, "i4", COUNT)
    assert np.asarray(buffer, "f8").tolist() == COUNT.tolist()
    assert buffer.__array__("f8").dtype == "f8"
    assert buffer.__array__(copy=True).flags.owndata
    with pytest.raises(ValueError, match="need a copy"):
        buffer.__array__("f8", copy=False)
    buffer.close()


@kinds
@pytest.mark.parametrize("dtype", ["M8[s]", "V5", "m8[ns]"])
def test_what_the_buffer_protocol_cannot_say(make, kind, dtype):
    """A dtype without a buffer format: a memoryview is refused, and NumPy gets the dtype.

    Otherwise both would see plain bytes.
    """
    buffer = make(kind, 3, dtype, np.zeros(3, dtype))
    with pytest.raises(BufferError, match=r"no format .* memoryview\(buffer\.view\('u1'\)\)"):
        memoryview(buffer)
    assert memoryview(buffer.view("u1")).nbytes == len(bytes(buffer)) == buffer.nbytes
    assert np.asarray(buffer).dtype == np.asarray(buffer.readonly()).dtype == dtype
    assert buffer.__array__().dtype == dtype
    assert buffer.to_numpy().dtype == dtype
    with buffer.write() as array:
        assert array.dtype == dtype
        array[1] = array[0]
    with buffer.read() as array:
        assert array.dtype == dtype


@kinds
def test_empty_buffers(make, kind):
    buffer = make(kind, 0, "f4")
    assert not buffer
    assert bytes(buffer) == b""
    assert np.asarray(buffer).shape == (0,)
    assert buffer.to_numpy().dtype == "f4"
    with buffer.write() as array:
        assert array.size == 0
    with pytest.raises(IndexError):
        buffer[0]
    buffer.close()


def test_write_combined_memory(stream):
    buffer = cu.LockedBuffer(8, "i4", write_combined=True)
    buffer[:] = COUNT
    device = cu.DeviceBuffer(8, "i4")
    device.copy_from_async(buffer, stream).wait()
    assert buffer.to_numpy().tolist() == COUNT.tolist()


def test_a_device_buffer_is_no_array(make):
    buffer = make("device", 4)
    assert len(buffer) == 4
    assert bool(buffer)
    for use, words in (
        (lambda: buffer[0], "copy what you need"),
        (lambda: buffer.__setitem__(0, 1), "copy_from"),
        (lambda: list(buffer), "copy_to"),
        (lambda: np.asarray(buffer), "to_numpy"),
        (lambda: np.array(buffer), "to_numpy"),
        (lambda: memoryview(buffer), "bytes-like"),
        (lambda: bytes(buffer), "bytes"),
    ):
        with pytest.raises(TypeError, match=words):
            use()
