"""Copies between buffers and ordinary memory: arrays, bytes and other exporters."""

import array
import ctypes

import numpy as np
import pytest

import cudadrv as cu

KINDS = ("device", "stream_ordered", "locked", "unified")
kinds = pytest.mark.parametrize("kind", KINDS)
MIB = 1 << 20

STRUCTURED = np.dtype([("a", "i4"), ("b", "S4"), ("c", "f8", (2,))])
PADDED = np.dtype([("a", "u1"), ("b", "f8")], align=True)
DTYPES = [
    *("?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "g", "c8", "c16"),
    *("S8", "U3", "V5", "M8[ns]", "m8[s]", ">i4", ">f8", ">c8"),
    *(STRUCTURED, PADDED),
]


def random_items(count, dtype):
    """Random items. If the dtype allows it, their bytes are random."""
    dtype = np.dtype(dtype)
    random = np.random.default_rng(5)
    if dtype.kind in "US?g":  # not every bit pattern is a valid item
        return random.integers(0, 2, count).astype(dtype)
    return random.integers(0, 256, count * dtype.itemsize, "u1").view(dtype)


def same(a, b):
    if a.dtype == PADDED:  # NumPy does not copy the bytes between the fields
        return all(a[name].tobytes() == b[name].tobytes() for name in PADDED.names)
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@kinds
def test_every_dtype_goes_in_and_out(make, items_of, stream, kind):
    for dtype in DTYPES:
        items = random_items(37, dtype)
        buffer = make(kind, 37, dtype)
        for on in (None, stream):
            buffer.copy_from(items, stream=on)
            assert same(items_of(buffer), items), (dtype, on)
        buffer.copy_from(items[::-1])
        found = np.empty(37, dtype)
        buffer.copy_to(found, stream=stream)
        assert same(found, items[::-1].copy()), dtype


@pytest.mark.parametrize("first", [0, 1, 63])
@pytest.mark.parametrize("nbytes", [65535, 262144, 262144 + 1, 262144 + 129, 2 * MIB + 65])
def test_large_stores_write_every_byte_at_any_alignment(make, stream, nbytes, first):
    """Copies above 256 KiB write every byte, at any alignment.

    They fill the stage in whole cache lines, except at the ends.
    """
    items = random_items(first + nbytes, "u1")[first:]
    buffer = make("device", nbytes)
    buffer.copy_from(np.zeros(nbytes, "u1"), stream=stream)  # leaves other bytes in the stage
    buffer.copy_from(items, stream=stream)
    found = np.empty(nbytes, "u1")
    buffer.copy_to(found, stream=stream)
    assert found.tobytes() == items.tobytes()
    buffer.copy_from_async(items[::-1], stream)
    buffer.copy_to(found, stream=stream)
    assert found.tobytes() == items[::-1].tobytes()


@kinds
@pytest.mark.parametrize("nbytes", [1, MIB - 1, MIB, MIB + 1, 3 * MIB + 12345])
def test_sizes_around_the_staging_blocks(make, stream, kind, nbytes):
    items = random_items(nbytes, "u1")
    buffer = make(kind, nbytes)
    buffer.copy_from(items, stream=stream)
    found = np.empty(nbytes, "u1")
    buffer.copy_to(found, stream=stream)
    assert (found == items).all()
    buffer.copy_from_async(items[::-1], stream)
    buffer.copy_to(found, stream=stream)
    assert (found == items[::-1]).all()
    assert not buffer.borrowed


@kinds
def test_other_exporters(make, kind):
    data = bytes(range(12))
    buffer = make(kind, 12)
    found = bytearray(12)
    for source in (data, bytearray(data), memoryview(data), (ctypes.c_ubyte * 12)(*data)):
        buffer.copy_from(bytes(12))
        buffer.copy_from(source)
        buffer.copy_to(found)
        assert found == data
    floats = array.array("f", [1, 2, 3])
    buffer.view("f4").copy_from(floats)
    target = array.array("f", [0, 0, 0])
    buffer.view("f4").copy_to(memoryview(target))
    assert target == floats


@kinds
def test_shapes_and_orders(make, items_of, stream, kind):
    cube = np.arange(24, dtype="i4").reshape(2, 3, 4)
    buffer = make(kind, 24, "i4")
    sources = {
        "C": cube,
        "Fortran": np.asfortranarray(cube),
        "strided": np.repeat(cube, 2, axis=2)[:, :, ::2],
        "transposed": cube.transpose(2, 0, 1).copy().transpose(1, 2, 0),
        "broadcast": np.broadcast_to(np.int32(3), (4, 6)),
    }
    for name, source in sources.items():
        source = source.view()
        source.flags.writeable = False
        buffer.copy_from(source)
        assert (items_of(buffer) == source.ravel()).all(), name
        buffer.copy_from_async(source, stream).wait()
        assert (items_of(buffer) == source.ravel()).all(), name
    buffer.copy_from(cube)
    found = np.empty_like(cube)
    buffer.copy_to(found)
    assert (found == cube).all()


@kinds
def test_scalars_and_empty_arrays(make, items_of, kind):
    one, none = make(kind, 1, "f8"), make(kind, 0, "f8")
    one.copy_from(np.array(2.5))
    assert items_of(one) == [2.5]
    found = np.array(0.0)
    one.copy_to(found)
    assert found == 2.5
    none.copy_from(np.empty((3, 0)))
    none.copy_to(np.empty((0, 3)))
    assert len(none) == 0


def test_targets_must_be_writable_and_contiguous(make):
    buffer = make("device", 4, "i4", np.arange(4, dtype="i4"))
    readonly = np.zeros(4, "i4")
    readonly.flags.writeable = False
    strided = np.zeros(8, "i4")[::2]
    for target in (readonly, strided, np.zeros((2, 2), "i4", order="F")):
        with pytest.raises(ValueError, match="copy_to needs"):
            buffer.copy_to(target)
    with pytest.raises(ValueError, match="read-only"):
        buffer.view("u1").copy_to(bytes(16))
    assert not readonly.any()
    assert not strided.any()


def test_other_dtypes_sizes_and_objects_are_refused(make, stream):
    buffer = make("device", 4, "f4")
    for refused in (np.zeros(4), b"0123456789abcdef", np.zeros(4, ">f4"), np.zeros(4, "O")):
        with pytest.raises(TypeError, match="different dtypes"):
            buffer.copy_from(refused)
        with pytest.raises(TypeError, match="different dtypes"):
            buffer.copy_from_async(refused, stream)
    for refused in ([1, 2, 3, 4], 3.0, "abcd", object()):
        with pytest.raises(TypeError, match="buffer protocol"):
            buffer.copy_from(refused)
        with pytest.raises(TypeError, match="buffer protocol"):
            buffer.copy_to(refused)
    for count in (0, 3, 5):
        with pytest.raises(ValueError, match="has 4 items, and the array of shape"):
            buffer.copy_from(np.zeros(count, "f4"))
    with pytest.raises(TypeError, match="Copy to a LockedBuffer"):
        cu.DeviceBuffer(4).copy_to_async(bytearray(4), stream)
    assert not buffer.borrowed


def test_a_snapshot_is_taken_in_the_call(make, items_of, stream, gate):
    source = np.arange(5000, dtype="i4")
    buffer = make("device", 5000, "i4", source)  # this copy allocates a page-locked stage
    gate.hold(stream)
    token = buffer.copy_from_async(source, stream)
    source[:] = -1
    gate.open()
    token.wait()
    assert (items_of(buffer) == np.arange(5000)).all()


@pytest.mark.cuda_software
def test_snapshots_do_not_share_their_staging(make, items_of, stream, other, gate):
    gate.hold(stream)
    gate.hold(other)
    buffers = [make("device", 100, "i4") for _ in range(6)]
    for i, buffer in enumerate(buffers):
        buffer.copy_from_async(np.full(100, i, "i4"), other if i % 2 else stream)
    gate.open()
    stream.synchronize()
    other.synchronize()
    assert [items_of(buffer)[[0, -1]].tolist() for buffer in buffers] == [[i, i] for i in range(6)]


def test_a_read_only_export_is_shared(make, items_of):
    locked = make("locked", 4, "i4", np.arange(4, dtype="i4"))
    device = make("device", 4, "i4")
    device.copy_from(locked.readonly())
    assert items_of(device).tolist() == [0, 1, 2, 3]
    assert not locked.borrowed


@pytest.mark.parametrize("dtype", ["O", np.dtype([("a", "O")])], ids=str)
def test_objects_have_no_place(dtype):
    with pytest.raises(TypeError, match="Python objects"):
        cu.DeviceBuffer(1, dtype)
    with pytest.raises(TypeError, match="Python objects"):
        cu.LockedBuffer.from_array(np.zeros(1, dtype))


def test_dtypes_without_a_size_are_refused():
    for dtype in ("S0", "V0", "U"):
        with pytest.raises(ValueError, match="0 bytes"):
            cu.DeviceBuffer(1, dtype)
    with pytest.raises(ValueError, match="multiply the count"):
        cu.DeviceBuffer(1, np.dtype(("i4", (2,))))
    with pytest.raises(TypeError):
        cu.DeviceBuffer(1, "no such dtype")


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 2 has it")
def test_strings_of_any_length_are_refused():
    with pytest.raises(TypeError, match="Python objects"):
        cu.DeviceBuffer(1, np.dtypes.StringDType())


@kinds
def test_from_array_and_zeros(make, items_of, stream, kind):
    cls = type(make(kind, 0))
    options = {"stream": stream} if kind == "stream_ordered" else {}
    square = np.arange(9, dtype="i8").reshape(3, 3)
    assert items_of(cls.from_array(square.T, **options)).tolist() == square.T.ravel().tolist()
    assert cls.from_array([1.5, 2.5], name="pair").name == "pair"
    for dtype in ("f8", "V3", "c16", STRUCTURED):
        assert not items_of(cls.zeros(7, dtype, **options)).tobytes().strip(b"\0")


@kinds
@pytest.mark.parametrize("on_a_stream", [False, True])
def test_memory_in_unusual_forms(make, items_of, stream, kind, on_a_stream):
    on = stream if on_a_stream else None
    items = np.arange(24, dtype=">i4")
    buffer = make(kind, 24, ">i4")
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(9, dtype=">i4"), 4)
    for source in (
        items.reshape(4, 6).T,
        items[::-1].reshape(2, 3, 4)[:, ::-1],
        windows,
        memoryview(items.reshape(2, 12))[::-1].obj,
        np.broadcast_to(items[3:5], (12, 2)),
        np.asfortranarray(items.reshape(6, 4)),
        np.ma.masked_array(items).data,
    ):
        buffer.copy_from(source, stream=on)
        assert items_of(buffer).tolist() == source.ravel().tolist()
        buffer.copy_from_async(source[::-1], stream).wait()
        assert items_of(buffer).tolist() == source[::-1].ravel().tolist()
    buffer.copy_from(items, stream=on)
    for target in (
        np.zeros((2, 3, 4), ">i4"),
        np.zeros((4, 24), ">i4")[2],
        np.zeros((24, 1), ">i4", order="F"),
        np.zeros((1, 24, 1), ">i4"),
    ):
        buffer.copy_to(target, stream=on)
        assert target.ravel().tolist() == items.tolist()
    for refused in (windows, np.zeros((4, 6), ">i4").T, np.zeros(48, ">i4")[::2]):
        before = refused.copy()
        with pytest.raises(ValueError, match="copy_to needs"):
            buffer.copy_to(refused, stream=on)
        assert (refused == before).all()


@kinds
@pytest.mark.parametrize("on_a_stream", [False, True])
def test_forms_without_items(make, stream, kind, on_a_stream):
    on = stream if on_a_stream else None
    none = make(kind, 0, "f8")
    for empty in (np.empty((3, 0)), np.empty((0, 3), order="F"), np.empty((0, 2))[::-1], b""):
        typed = none if isinstance(empty, np.ndarray) else none.view("u1")
        typed.copy_from(empty, stream=on)
        assert typed.copy_from_async(empty, stream).done
        if not isinstance(empty, bytes):
            typed.copy_to(empty, stream=on)
    assert not none.borrowed


@pytest.mark.parametrize("kind", ["locked", "unified"])
def test_a_buffer_and_a_view_of_itself(make, stream, kind):
    buffer = make(kind, 8, "i4", np.arange(8, dtype="i4"))
    view = np.asarray(buffer)
    buffer.copy_from(view[::-1])
    buffer[1:5].copy_from(view[:4])
    buffer.copy_to(view)
    assert view.tolist() == [7, 7, 6, 5, 4, 2, 1, 0]
    with pytest.raises(cu.BufferExportedError):
        buffer.copy_from(view, stream=stream)
    with pytest.raises(cu.BufferExportedError):
        buffer.copy_to(view, stream=stream)


@pytest.mark.parametrize("kind", ["device", "locked"])
def test_no_bytes_do_not_excuse_a_closed_stream(make, kind):
    buffer, stream = make(kind, 0), cu.Stream()
    stream.close()
    for copy in (buffer.copy_from, buffer.copy_to):
        with pytest.raises(ValueError, match="is closed"):
            copy(np.empty(0, "u1"), stream=stream)
