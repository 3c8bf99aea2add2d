"""When memory dies, and what giving it back waits for, must not change any answer."""

import pytest

import cudadrv as cu

pytestmark = pytest.mark.usefixtures("unpooled")  # it is about what goes back to the driver


def test_waiting_for_dead_memory_is_no_observation(stream):
    dead, alive = cu.DeviceBuffer(64), cu.LockedBuffer(64)
    source = cu.DeviceBuffer(64)
    dead.fill_async(1, stream)
    alive.copy_from_async(source, stream)
    del dead
    cu.reap()
    with pytest.raises(cu.BufferBorrowedError):
        alive[0] = 1
    stream.synchronize()
    alive[0] = 1
