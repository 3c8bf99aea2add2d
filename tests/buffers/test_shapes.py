"""Shapes of buffers and of their arrays. Boxes are in test_boxes.py."""

import ctypes

import numpy as np
import pytest

import cudadrv as cu

CLASSES = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}
KINDS = pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
ON_HOST = pytest.mark.parametrize("cls", [cu.LockedBuffer, cu.UnifiedBuffer])
POINT = np.dtype([("x", "f4"), ("n", "i2"), ("name", "S3")])
DTYPES = ["u1", "f4", "c16", "S5", ">i4", "datetime64[us]", "bool", POINT]
SHAPES = [(12,), (3, 4), (2, 3, 2), (1, 12), (12, 1), (1, 1, 12), (2, 6, 1)]
EMPTY = [(0,), (0, 4), (3, 0), (2, 0, 5)]
FULL_RO = 0x011C  # PyBUF_FULL_RO: INDIRECT | FORMAT
SIMPLE, ND, STRIDES, F_CONTIGUOUS, ANY_CONTIGUOUS = 0x0, 0x8, 0x18, 0x58, 0x98


def items(shape, dtype):
    array = np.arange(np.prod(shape, dtype=int) * np.dtype(dtype).itemsize, dtype="u1") % 2
    return np.frombuffer(array.tobytes(), dtype).reshape(shape)


@KINDS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES + EMPTY, ids=str)
def test_to_numpy(cls, shape, dtype):
    array = items(shape, dtype)
    buffer = cls(array.size, dtype)
    buffer.copy_from(array)
    shaped = buffer.reshape(shape)
    assert shaped.shape == shape
    found = shaped.to_numpy()
    assert type(found) is np.ndarray
    assert (found.shape, found.dtype) == (shape, np.dtype(dtype))
    assert found.tobytes() == array.tobytes()
    assert buffer.to_numpy().shape == (array.size,)


@KINDS
@pytest.mark.parametrize("shape", SHAPES + EMPTY, ids=str)
def test_from_array_keeps_the_shape(cls, shape):
    array = items(shape, "f4")
    for given in (array, np.asfortranarray(array), array.tolist() if array.size else array):
        buffer = cls.from_array(np.asarray(given, "f4"))
        assert buffer.shape == shape
        assert (buffer.to_numpy() == array).all()
        assert (buffer.count, len(buffer)) == (array.size, len(array))
    assert cls.from_array(np.float32(3)).shape == (1,)


@ON_HOST
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES + EMPTY, ids=str)
def test_host_views(cls, shape, dtype):
    array = items(shape, dtype)
    buffer = cls(array.size, dtype).reshape(shape)
    with buffer.write() as target:
        assert (target.shape, target.dtype) == (shape, array.dtype)
        target[...] = array
    with buffer.read() as source:
        assert source.shape == shape
        assert source.tobytes() == array.tobytes()
        assert not (source.size and source.flags.writeable)
    assert source.size == target.size == 0
    for view in (np.asarray(buffer), np.asarray(buffer.readonly()), np.array(buffer)):
        assert (view.shape, view.dtype) == (shape, array.dtype)
        assert view.tobytes() == array.tobytes()
        del view
    assert bytes(buffer) == array.tobytes()


@ON_HOST
@pytest.mark.parametrize("shape", [*SHAPES, *EMPTY, ()], ids=str)
def test_the_buffer_protocol(cls, shape):
    array = items(shape, "i4")
    buffer = cls.from_array(array).reshape(shape)
    for exporter in (buffer, buffer.readonly()):
        view, wanted = memoryview(exporter), memoryview(array)
        assert (view.shape, view.strides, view.ndim) == (wanted.shape, array.strides, wanted.ndim)
        assert (view.format, view.itemsize, view.nbytes) == ("i", 4, array.nbytes)
        assert view.c_contiguous
        assert view.tolist() == wanted.tolist()
        view.release()
    assert not buffer.borrowed


class View(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


@ON_HOST
def test_consumers_that_ask_for_less(cls):
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes = [ctypes.py_object, ctypes.POINTER(View), ctypes.c_int]
    release.argtypes = [ctypes.POINTER(View)]
    buffer = cls(12, "f4").reshape(3, 4)
    for flags, ndim, shape, strides in (
        (SIMPLE, 1, None, None),
        (ND, 2, [3, 4], None),
        (STRIDES, 2, [3, 4], [16, 4]),
        (ANY_CONTIGUOUS, 2, [3, 4], [16, 4]),
        (FULL_RO, 2, [3, 4], [16, 4]),
    ):
        view = View()
        get(buffer, view, flags)
        assert (view.ndim, view.len, view.itemsize) == (ndim, 48, 4)
        assert (view.shape[:2] if view.shape else None) == shape
        assert (view.strides[:2] if view.strides else None) == strides
        release(view)
    with pytest.raises(BufferError, match="Fortran order"):
        get(buffer, View(), F_CONTIGUOUS)
    view = View()
    get(cls(12, "f4"), view, F_CONTIGUOUS)
    release(view)


@ON_HOST
def test_assigning_to_the_whole(cls):
    buffer = cls.zeros(12, "f4").reshape(3, 4)
    buffer[:] = np.arange(12).reshape(3, 4)
    assert buffer.to_numpy().tolist() == np.arange(12).reshape(3, 4).tolist()
    buffer[:] = [1, 2, 3, 4]  # assigns to each row, as NumPy does
    assert buffer.to_numpy().tolist() == [[1, 2, 3, 4]] * 3
    buffer[:] = 7
    assert (buffer.to_numpy() == 7).all()
    with pytest.raises(ValueError, match="broadcast"):
        buffer[:] = np.arange(12)
    buffer.flat[:3] = [4, 5, 6]
    assert buffer.to_numpy()[0].tolist() == [4, 5, 6, 7]


class Hostile(np.ndarray):
    """An array whose methods give wrong results, and keep their arguments."""

    shape = (99,)

    def reshape(self, *args):
        raise AssertionError("asked")

    def __array_finalize__(self, other):
        kept.append(other)

    def __array__(self, *args, **more):
        raise AssertionError("asked")


kept = []


@KINDS
def test_subclasses_of_arrays_have_no_say(cls):
    array = np.arange(12, dtype="f4").reshape(3, 4).view(Hostile)
    buffer = cls.from_array(array)
    assert buffer.shape == (3, 4)
    buffer.copy_from(array)
    assert type(buffer.to_numpy()) is np.ndarray
    if cls is not cu.DeviceBuffer:
        buffer[:] = array
        with buffer.read() as found:
            assert type(found) is np.ndarray
    kept.clear()


# ---- rows and items ----


@KINDS
def test_parts_and_indices_count_rows(cls):
    buffer = cls.from_array(np.arange(12, dtype="i4").reshape(3, 4))
    assert len(buffer) == 3
    assert buffer[1:10].shape == (2, 4)
    assert buffer[0:3].shape == (3, 4)
    assert buffer[:].shape == (3, 4)
    assert buffer[1].shape == (4,)
    assert [part.shape for part in buffer.split_at(1)] == [(1, 4), (2, 4)]
    assert [part.shape for part in buffer.chunks(2)] == [(2, 4), (1, 4)]
    assert [row.to_numpy().tolist() for row in buffer] == np.arange(12).reshape(3, 4).tolist()
    if cls is not cu.DeviceBuffer:
        assert buffer[1, 2] == 6


@KINDS
def test_flat_counts_items(cls):
    buffer = cls.from_array(np.arange(12, dtype="i4").reshape(3, 4))
    assert buffer.flat[6:8].to_numpy().tolist() == [6, 7]
    assert [part.shape for part in buffer.flat.split_at(5)] == [(5,), (7,)]
    assert len(buffer.flat) == buffer.count == 12
    if cls is not cu.DeviceBuffer:
        assert buffer.flat[6] == 6
        assert list(buffer.flat) == list(range(12))


@KINDS
def test_what_keeps_a_shape(cls, stream):
    buffer = cls(12, "f4").reshape(3, 4)
    assert buffer.view("i4").shape == (3, 4)
    assert buffer.view("u2").shape == (24,)
    assert buffer.reshape(-1).shape == (12,)
    assert cls(12, "f4").take().shape == (12,)
    shaped = cls.from_array(np.zeros((3, 4), "f4"))
    assert shaped.take().shape == (3, 4)
    assert buffer.lend(stream).shape == (3, 4)


@KINDS
def test_shapes_that_cannot_be(cls):
    buffer = cls(12)
    for shape in ((5, 2), (-1, 5), (-1, -1), (-2, -6), ()):
        with pytest.raises(ValueError, match="shape"):
            buffer.reshape(shape)
    with pytest.raises(ValueError, match="at most 64 dimensions, not 65"):
        buffer.reshape((1,) * 64 + (12,))
    with pytest.raises(TypeError):
        buffer.reshape(2.0, 6)
    most = np.zeros(0).reshape((0,) * 32).ndim  # the maximum number of dimensions of NumPy 1
    assert cls.from_array(np.zeros((1,) * most)).to_numpy().ndim == most


def test_copies_count_items(stream):
    source = cu.LockedBuffer.from_array(np.arange(12, dtype="f4").reshape(3, 4))
    target = cu.DeviceBuffer(12, "f4").reshape(4, 3)
    target.copy_from_async(source, stream).wait()
    assert target.to_numpy().tolist() == np.arange(12).reshape(4, 3).tolist()
    array = np.empty(12, "f4")
    target.copy_to(array)
    assert array.tolist() == list(range(12))


def test_read_only_imports():
    owner = cu.LockedBuffer.from_array(np.arange(12, dtype="f4").reshape(3, 4))
    buffer = cu.from_dlpack(owner.lend(None, readonly=True))
    assert buffer.shape == (3, 4)
    assert buffer.to_numpy().shape == (3, 4)
    with buffer.read() as array:
        assert array.shape == (3, 4)
    assert memoryview(buffer.readonly()).shape == (3, 4)
    with pytest.raises(BufferError, match="read-only"), buffer.write():
        pass
