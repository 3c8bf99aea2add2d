"""What can still reach the memory when a ``with`` block ends is found, and named."""

import copy
import ctypes
import gc
import io
import pickle
import struct
from types import SimpleNamespace

import numpy as np
import pytest

import cudadrv as cu

RECORD = np.dtype([("a", "i4"), ("b", "f4")])
# The buffer protocol can say the first two of these and not the others.
dtypes = pytest.mark.parametrize("dtype", ["i4", RECORD, "M8[s]", "V4"], ids=str)


def traceback_of(array):
    try:
        kept = array
        raise KeyError(kept.size)
    except KeyError as error:
        return error


def cycle_of(array):
    ring = [array]
    ring.append(ring)
    return ring


ESCAPES = {
    "T": lambda array: array.T,
    "reshape": lambda array: array.reshape(2, 4),
    "ravel": lambda array: array.ravel(),
    "part": lambda array: array[1:3],
    "no items": lambda array: array[:0],
    "view as bytes": lambda array: array.view("u1"),
    "base": lambda array: array.base,
    "squeeze": lambda array: array.squeeze(),
    "broadcast": lambda array: np.broadcast_to(array, (3, 8)),
    "windows": lambda array: np.lib.stride_tricks.sliding_window_view(array, 3),
    "split": lambda array: np.array_split(array, 3),
    "iterator": iter,
    "flat": lambda array: array.flat,
    "generator": lambda array: (item for item in array),
    "closure": lambda array: lambda: array[0],
    "traceback": traceback_of,
    "cycle": cycle_of,
    "attribute": lambda array: SimpleNamespace(kept=array),
    "alias": lambda array: array,
}
# Those that need the buffer protocol, or numbers.
CONSUMERS = {
    "data": lambda array: array.data,
    "nested memoryview": lambda array: memoryview(memoryview(array)[1:])[1:],
    "frombuffer": lambda array: np.frombuffer(array, "u1"),
    "ndarray": lambda array: np.ndarray((8,), "i4", buffer=array),
    "nditer": np.nditer,
    "ctypes": lambda array: (ctypes.c_int * 8).from_buffer(array),
    "ctypes attribute": lambda array: array.ctypes,
    "iter_unpack": lambda array: struct.iter_unpack("i", array),
    "out-of-band pickle": lambda array: pickled_beside(array),
    "masked": np.ma.masked_array,
    "dlpack": lambda array: array.__dlpack__(),
    "array struct": lambda array: array.__array_struct__,
}
COPIES = {
    "item": lambda array: array[0],
    "list": list,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "bytes": bytes,
    "BytesIO": io.BytesIO,
    "address": lambda array: array.ctypes.data,
}


def pickled_beside(array):
    beside = []
    return pickle.dumps(array, 5, buffer_callback=beside.append), beside


def escape(buffer, way, keep):
    """What was kept, and what leaving the block said of it."""
    said = ""
    try:
        with getattr(buffer, way)() as array:
            kept = keep(array)
    except cu.BufferExportedError as error:
        said = str(error)
    return kept, said


@pytest.mark.parametrize("way", ["read", "write"])
@pytest.mark.parametrize("keep", ESCAPES.values(), ids=ESCAPES)
@dtypes
def test_views_and_what_holds_them(make, stream, dtype, keep, way):
    buffer = make("locked", 8, dtype)
    kept, said = escape(buffer, way, keep)
    assert "is still referred to by" in said
    with pytest.raises(cu.BufferExportedError):
        buffer.view("u1").fill_async(0, stream)
    with pytest.raises(cu.BufferExportedError, match="a host view of it is alive, made at"):
        buffer.close()
    del kept
    gc.collect()  # some are cycles
    buffer.view("u1").fill_async(0, stream).wait()
    buffer.close()


@pytest.mark.parametrize("keep", CONSUMERS.values(), ids=CONSUMERS)
def test_consumers(make, stream, keep):
    buffer = make("locked", 8, "i4", np.arange(8, dtype="i4"))
    kept, said = escape(buffer, "write", keep)
    assert "is still referred to by" in said
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, stream)
    del kept
    buffer.fill_async(0, stream).wait()


@pytest.mark.parametrize("keep", COPIES.values(), ids=COPIES)
def test_copies_hold_nothing(make, stream, keep):
    buffer = make("locked", 8, "i4", np.arange(8, dtype="i4"))
    kept, said = escape(buffer, "write", keep)
    assert not said
    buffer.fill_async(0, stream).wait()
    if isinstance(kept, np.ndarray):
        assert kept.tolist() == list(range(8))


def test_a_function_that_names_the_variable_itself_finds_it_empty(make, stream):
    buffer = make("locked", 8)

    def names_it():
        with buffer.write() as array:
            later = lambda: array[0]  # noqa: E731
        return later

    later = names_it()
    buffer.fill_async(0, stream).wait()
    with pytest.raises(IndexError):
        later()


def leave_by_return(buffer):
    with buffer.write() as array:
        return int(array[0])


def leave_by_break(buffer):
    for _ in range(2):
        with buffer.write() as array:
            array[0] = 1
            break


def leave_by_exception(buffer):
    try:
        with buffer.write() as array:
            array[0] = 1
            raise KeyError
    except KeyError:
        pass


def leave_a_generator(buffer):
    def items():
        with buffer.write() as array:
            yield array[0]

    next(items())


@pytest.mark.parametrize(
    "leave", [leave_by_return, leave_by_break, leave_by_exception, leave_a_generator]
)
def test_a_block_that_is_left_early_is_over(make, stream, leave):
    buffer = make("locked", 8, "u1", np.ones(8, "u1"))
    leave(buffer)
    buffer.fill_async(0, stream).wait()
    buffer.close()


def test_returning_the_array_is_an_escape(make):
    buffer = make("locked", 8)

    def leave():
        with buffer.write() as array:
            return array

    with pytest.raises(cu.BufferExportedError, match="by another name"):
        leave()


@pytest.mark.parametrize("kind", ["locked", "unified"])
def test_the_host_is_one_user(make, stream, kind):
    buffer = make(kind, 8, "i4", np.arange(8, dtype="i4"))
    with buffer.read() as first, buffer.read() as second:
        assert np.shares_memory(first, second)
        with buffer.write() as third:
            third[0] = 5
            buffer[1] = 6
        assert first[:2].tolist() == second[:2].tolist() == [5, 6]
        make("device", 8, "i4").copy_from_async(buffer, stream)
        with pytest.raises(cu.BufferExportedError):
            buffer.fill_async(0, stream)
    buffer.fill_async(0, stream).wait()


def test_what_ends_inside_a_block(make, stream):
    buffer = make("locked", 8)
    with buffer.write() as array:
        for end in (buffer.close, buffer.into_raw):
            with pytest.raises(cu.BufferExportedError):
                end()
        moved = buffer.take()
        with pytest.raises(cu.BufferExportedError):
            moved.fill_async(0, stream)
        with pytest.raises(cu.BufferClosedError, match="moved"):
            buffer.fill_async(0, stream)
        array[3] = 3
    assert moved[3] == 3
    moved.fill_async(0, stream).wait()
    moved.close()


def test_a_block_outlives_the_name_of_its_buffer(make):
    with make("locked", 8).write() as array:
        array[:] = 7
        assert array.sum() == 56
