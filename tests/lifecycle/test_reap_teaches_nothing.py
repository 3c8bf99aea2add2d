"""Answers depend neither on when memory is released nor on what the release waits for."""

import pytest

import cudadrv as cu

# These tests are about memory that goes back to the driver.
pytestmark = pytest.mark.usefixtures("unpooled")


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
