"""When memory dies, and what giving it back waits for, must not change any answer."""

import weakref

import pytest

import cudadrv as cu


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


def test_every_owner_of_a_foreign_stream_is_kept(stream):
    class Owner:
        pass

    first, second = Owner(), Owner()
    kept = [weakref.ref(first), weakref.ref(second)]
    ours = cu.Stream.from_handle(stream.handle, owner=first)
    assert cu.Stream.from_handle(stream.handle, owner=second) is ours
    del first, second
    assert all(each() is not None for each in kept)
