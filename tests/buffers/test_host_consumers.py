"""Other consumers of the buffer protocol that read and write host-side buffers."""

import copy
import ctypes
import io
import pickle
import struct
import threading
import time

import numpy as np
import pytest
from limits import PATIENCE

import cudadrv as cu

# One schedule suffices: the results do not depend on when GPU work runs.
pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)

kinds = pytest.mark.parametrize("kind", ["locked", "unified"])
COUNT = np.arange(8, dtype="i4")


def is_free(buffer, stream):
    """Whether the GPU may write the buffer."""
    try:
        buffer.view("u1").fill_async(0, stream).wait()
    except cu.BufferExportedError:
        return False
    return True


@kinds
@pytest.mark.parametrize(
    "hold",
    [
        lambda buffer: memoryview(buffer)[2:4],
        lambda buffer: memoryview(memoryview(buffer)).cast("B")[1:],
        lambda buffer: (ctypes.c_int * 8).from_buffer(buffer),
        lambda buffer: np.frombuffer(buffer, "u1")[3:],
        lambda buffer: np.asarray(buffer).reshape(2, 4).T,
        lambda buffer: np.asarray(buffer[2:].view("u1")),
        lambda buffer: iter(np.asarray(buffer)),
        lambda buffer: struct.iter_unpack("i", buffer),
    ],
    ids=["nested", "cast", "ctypes", "frombuffer", "view", "part", "iterator", "iter_unpack"],
)
def test_the_last_one_that_refers_to_it_releases_it(make, stream, kind, hold):
    buffer = make(kind, 8, "i4", COUNT)
    kept = hold(buffer)
    assert not is_free(buffer, stream)
    with pytest.raises(cu.BufferExportedError):
        buffer.close()
    del kept
    assert is_free(buffer, stream)
    buffer.close()


@kinds
@pytest.mark.parametrize(
    "use",
    [
        bytes,
        bytearray,
        io.BytesIO,
        list,
        iter,
        np.array,
        np.sum,
        lambda buffer: b"".join([buffer, buffer]),
        lambda buffer: struct.unpack_from("i", buffer),
        lambda buffer: buffer == buffer,
        lambda buffer: io.BytesIO(bytes(32)).readinto(buffer),
        lambda buffer: np.add(buffer, 1),
    ],
)
def test_what_copies_holds_nothing(make, stream, kind, use):
    buffer = make(kind, 8, "i4", COUNT)
    kept = use(buffer)
    assert is_free(buffer, stream)
    del kept


def test_a_view_of_a_part_holds_its_part(make, stream):
    buffer = make("locked", 8, "i4", COUNT)
    view = memoryview(buffer[2:4])
    buffer[:2].fill_async(0, stream)
    buffer[4:].fill_async(0, stream).wait()
    for part in (buffer[3:5], buffer[:3], buffer):
        assert not is_free(part, stream)
    view[0] = 50
    view.release()
    assert buffer.to_numpy().tolist() == [0, 0, 50, 3, 0, 0, 0, 0]


def test_buffers_are_not_pickled_or_copied(make):
    buffer = make("locked", 8)
    for thing in (buffer, buffer.readonly(), make("device", 8)):
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=r"cannot (be )?pickle"):
                duplicate(thing)


def test_views_share_memory_and_copies_do_not(make):
    buffer = make("locked", 8, "i4", COUNT)
    view = np.asarray(buffer)
    assert np.shares_memory(view, np.asarray(buffer.readonly()))
    assert np.shares_memory(view, np.asarray(buffer.view("u1")))
    assert not np.shares_memory(np.asarray(buffer[:4]), np.asarray(buffer[4:]))
    assert not np.shares_memory(view, buffer.to_numpy())
    assert view.__array_interface__["data"] == (buffer.address, False)


class Converted:
    """The right-hand side of an assignment. Its conversion calls `work`, which queues work."""

    def __init__(self, work):
        self.work = work

    def __array__(self, dtype=None, copy=None):
        self.work()
        return np.full(8, 9, "i4")


@kinds
def test_the_right_hand_side_is_converted_before_the_borrow(make, stream, kind):
    buffer = make(kind, 8, "i4", COUNT)
    with pytest.raises(cu.BufferBorrowedError, match="written by fill_async"):
        buffer[:] = Converted(lambda: buffer.fill_async(3, stream))
    stream.synchronize()
    assert set(buffer.to_numpy()) == {3}
    buffer[:] = Converted(lambda: buffer.fill_async(3, stream).wait())
    assert set(buffer.to_numpy()) == {9}
    with pytest.raises(cu.BufferClosedError):
        buffer[:] = Converted(buffer.close)


@kinds
@pytest.mark.parametrize("way", ["write", "read"])
def test_an_access_is_a_borrow_while_it_runs(make, kind, way):
    """While one thread accesses the buffer, another one sees the access among its borrows."""
    buffer, array = make(kind, 8 << 20), np.ones(8 << 20, "u1")
    enough = threading.Event()

    def access():
        while not enough.is_set():
            if way == "write":
                buffer[:] = array
            else:
                buffer.to_numpy()

    thread = threading.Thread(target=access)
    thread.start()
    end = time.monotonic() + PATIENCE
    while not (found := "a host view of it is alive" in buffer.explain()):
        if time.monotonic() > end:
            break
    enough.set()
    thread.join()
    assert found
    assert "is free" in buffer.explain()
