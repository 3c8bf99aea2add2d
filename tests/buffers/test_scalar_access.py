"""`scalar_access`: access to single items is refused, and everything else still works."""

import numpy as np
import pytest

import cudadrv as cu

USES = [
    lambda buffer: buffer[3],
    lambda buffer: buffer[-1],
    lambda buffer: buffer[np.int64(2)],
    lambda buffer: buffer.__setitem__(3, 1),
    lambda buffer: list(buffer),
    lambda buffer: 3 in buffer,
    lambda buffer: next(iter(buffer)),
    lambda buffer: buffer[2:][0],
    lambda buffer: buffer.view("u1")[0],
    lambda buffer: buffer.reshape(2, 4)[0, 1],
    lambda buffer: buffer[1000],
]


@pytest.fixture(params=[cu.LockedBuffer, cu.UnifiedBuffer])
def buffer(driver, request):
    return request.param.from_array(np.arange(8, dtype="i4"), name="numbers")


def refused(buffer, where):
    for use in USES:
        with pytest.raises(TypeError, match="has no access to single items") as caught:
            use(buffer)
        message = str(caught.value)
        assert where in message
        assert "buffer[a:b].to_numpy()" in message
        assert "with buffer.write() as array" in message


def works(buffer):
    """Check that everything works except access to single items."""
    buffer[2:4] = [7, 8]
    buffer[5:6] = 9
    assert buffer[2:6].to_numpy().tolist() == [7, 8, 4, 9]
    with buffer.write() as array:
        array[0] = 5
    with buffer.read() as array:
        assert array[0] == 5
    assert np.asarray(buffer)[1] == 1
    assert memoryview(buffer)[1] == 1
    assert bytes(buffer)[:4] == b"\5\0\0\0"
    buffer.fill(1)
    buffer.copy_from(np.arange(8, dtype="i4"))


def test_of_a_buffer(buffer):
    assert buffer.scalar_access is True
    buffer.scalar_access = False
    assert buffer.scalar_access is False
    refused(buffer, "because its scalar_access is False")
    works(buffer)
    assert not buffer[1:].scalar_access
    moved = buffer.take()
    assert not moved.scalar_access
    moved.scalar_access = True
    assert moved[3] == 3


def test_parts_made_before_keep_theirs(buffer):
    part = buffer[2:]
    buffer.scalar_access = False
    assert part[0] == 2


def test_in_a_block(buffer):
    with cu.scalar_access(False) as block:
        assert block.allowed is False
        refused(buffer, "inside scalar_access(False)")
        works(buffer)
    assert buffer[3] == 3


def test_the_innermost_block_counts(buffer):
    buffer.scalar_access = False
    with cu.scalar_access(True):
        assert buffer[3] == 3
        with cu.scalar_access(False):
            refused(buffer, "inside scalar_access(False)")
        buffer[3] = 4
    refused(buffer, "because its scalar_access is False")


def test_a_block_is_of_its_thread(buffer, in_a_thread):
    with cu.scalar_access(False):
        assert in_a_thread(lambda: buffer[3]) == 3


def test_a_refused_item_borrows_nothing(buffer, stream, gate):
    gate.hold(stream)
    buffer.fill_async(1, stream)
    # TypeError comes before BufferBorrowedError.
    with cu.scalar_access(False), pytest.raises(TypeError):
        buffer[0]
    gate.open()
    stream.synchronize()


def test_the_end_of_a_block_elsewhere():
    block = cu.scalar_access(False)
    with pytest.raises(RuntimeError, match=r"this block of scalar_access\(False\) is not entered"):
        block.__exit__(None, None, None)


def test_bad_values(buffer):
    for value in (None, 1, 0, "no"):
        with pytest.raises(TypeError, match="scalar_access is True or False"):
            cu.scalar_access(value)
        with pytest.raises(TypeError, match="scalar_access is True or False"):
            buffer.scalar_access = value
    assert buffer.scalar_access is True


def test_keys_that_are_none(buffer):
    buffer.scalar_access = False
    with pytest.raises(TypeError, match="indices are integers, slices"):
        buffer["x"]
