"""``DeviceBuffer.to_numpy()``: a blocking copy to a new array."""

import numpy as np
import pytest

import cudadrv as cu


@pytest.mark.parametrize("dtype", ["u1", "f4", ">u2", "c8", "M8[s]", "u1,u4"])
@pytest.mark.parametrize("count", [0, 1, 1000, 300_000])
def test_the_items(driver, dtype, count):
    array = np.frombuffer(np.random.default_rng(1).bytes(count * np.dtype(dtype).itemsize), dtype)
    buffer = cu.DeviceBuffer.from_array(array)
    found = buffer.to_numpy()
    assert found.dtype == array.dtype
    assert found.shape == (count,)
    assert found.tobytes() == array.tobytes()
    assert found.flags.owndata
    assert found.flags.writeable


def test_parts_and_views(driver):
    buffer = cu.DeviceBuffer.from_array(np.arange(16, dtype="u1"))
    assert buffer[4:8].to_numpy().tolist() == [4, 5, 6, 7]
    assert buffer[:4].view("<u4").to_numpy().tolist() == [0x03020100]


def test_it_is_a_copy(driver):
    buffer = cu.DeviceBuffer.zeros(16)
    found = buffer.to_numpy()
    buffer.fill(1)
    assert not found.any()
    buffer.close()
    assert not found.any()


def test_unfinished_work_that_writes_is_refused(stream, other):
    buffer = cu.DeviceBuffer.zeros(16)
    buffer.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match="by copy_to on a stream of its own"):
        buffer.to_numpy()
    with pytest.raises(cu.BufferBorrowedError):
        buffer.to_numpy(stream=other)
    assert buffer.to_numpy(stream=stream).tolist() == [1] * 16
    assert not buffer.borrowed
    assert buffer.to_numpy().tolist() == [1] * 16


def test_work_that_reads_is_not(stream):
    buffer, target = cu.DeviceBuffer.zeros(16), cu.LockedBuffer(16)
    buffer.copy_to_async(target, stream)
    assert not buffer.to_numpy().any()
    stream.synchronize()


def test_the_current_stream(stream):
    buffer = cu.DeviceBuffer.zeros(16)
    with stream:
        buffer.fill_async(2)
        assert buffer.to_numpy().tolist() == [2] * 16


def test_the_policy_wait(stream):
    buffer = cu.DeviceBuffer.zeros(16)
    buffer.fill_async(3, stream)
    with cu.ordering("wait"):
        assert buffer.to_numpy().tolist() == [3] * 16
    stream.synchronize()


def test_what_cannot_be_copied(stream):
    closed = cu.DeviceBuffer(4)
    closed.close()
    with pytest.raises(cu.BufferClosedError):
        closed.to_numpy()
    with pytest.raises(TypeError, match="never initialized"):
        cu.DeviceBuffer.__new__(cu.DeviceBuffer).to_numpy()
    ended = cu.Stream()
    ended.close()
    for count in (0, 4):
        with pytest.raises(ValueError, match="is closed"):
            cu.DeviceBuffer(count).to_numpy(stream=ended)
    with pytest.raises(TypeError):
        cu.DeviceBuffer(4).to_numpy(stream)
