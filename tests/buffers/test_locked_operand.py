"""Page-locked memory that the device uses at its address, also in other libraries."""

import ctypes

import numpy as np
import pytest

import cudadrv as cu


class OtherLibrary:
    """Queues work that cudadrv does not see."""

    def __init__(self):
        library = ctypes.CDLL(cu.driver_info().path)
        number, size, stream = ctypes.c_ulonglong, ctypes.c_size_t, ctypes.c_void_p
        self.set = library.cuMemsetD8Async
        self.set.argtypes = [number, ctypes.c_ubyte, size, stream]
        self.copy = library.cuMemcpyDtoDAsync_v2
        self.copy.argtypes = [number, number, size, stream]

    def fill(self, address, value, nbytes, stream):
        assert self.set(address, value, nbytes, stream.handle) == 0

    def move(self, target, source, nbytes, stream):
        assert self.copy(target, source, nbytes, stream.handle) == 0


def test_the_address_is_one_for_host_and_device(stream):
    """cudadrv has no records of another library's work.

    A synchronization of the stream covers this work nevertheless.
    """
    library = OtherLibrary()
    first, second = cu.LockedBuffer.zeros(8), cu.LockedBuffer.zeros(8)
    library.fill(first.address, 7, 8, stream)
    library.move(second[2:].address, first.address, 6, stream)
    assert not first.borrowed
    stream.synchronize()
    assert first.to_numpy().tolist() == [7] * 8
    assert second.to_numpy().tolist() == [0, 0] + [7] * 6


@pytest.mark.parametrize("foreign", [False, True])
def test_work_on_it_borrows_as_work_on_device_memory_does(stream, other, foreign):
    own = cu.LockedBuffer.zeros(8, "u2", name="own")
    buffer = cu.LockedBuffer.from_address(own.address, 8, "u2", owner=own) if foreign else own
    target, device = cu.LockedBuffer.zeros(8, "u2"), cu.DeviceBuffer(8, "u2")
    buffer.fill_async(3, stream)
    for refused in (
        lambda: target.copy_from_async(buffer, other),
        lambda: device.copy_from_async(buffer, other),
        lambda: buffer[7:].fill_async(0, other),
        lambda: buffer[0],
        lambda: np.asarray(buffer),
        buffer.close,
    ):
        with pytest.raises(cu.BufferBorrowedError, match="written by fill_async"):
            refused()
    other.wait(stream)
    target.copy_from_async(buffer, other)
    device.copy_from_async(buffer, stream)
    assert [borrow.mode for borrow in buffer.borrows] == ["write", "read", "read"]
    with pytest.raises(cu.BufferBorrowedError, match="read by copy_from_async"):
        buffer.fill_async(0, stream)
    stream.wait(other)
    buffer.fill_async(0, stream)
    stream.synchronize()
    assert target.to_numpy().tolist() == [3] * 8
    assert not any(buffer.to_numpy())
    with buffer.read():
        with pytest.raises(cu.BufferExportedError):
            buffer.fill_async(1, stream)
    buffer.close()
    assert own.closed == (not foreign)


def test_parts_move_within_one_buffer(stream, other):
    buffer = cu.LockedBuffer.from_array(np.arange(8, dtype="u1"))
    low, high = buffer.split_at(4)
    high.copy_from_async(low, stream)
    with pytest.raises(cu.BufferBorrowedError):
        low.fill_async(9, other)
    assert low[0] == 0
    with pytest.raises(cu.BufferBorrowedError):
        high[0]
    stream.synchronize()
    assert buffer.to_numpy().tolist() == [0, 1, 2, 3] * 2
