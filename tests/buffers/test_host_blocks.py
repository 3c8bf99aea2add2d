"""``with buffer.read()`` and ``with buffer.write()``: the array, and the end of the block."""

import threading
import time

import numpy as np
import pytest

import cudadrv as cu

kinds = pytest.mark.parametrize("kind", ["locked", "unified"])
COUNT = np.arange(8, dtype="i4")


@kinds
def test_write(make, stream, kind):
    buffer = make(kind, 8, "i4", COUNT)
    with buffer.write() as array:
        array *= 2
        with pytest.raises(cu.BufferExportedError):
            make("device", 8, "i4").copy_from_async(buffer, stream)
        with pytest.raises(cu.BufferExportedError):
            buffer.close()
    assert buffer.to_numpy().tolist() == (2 * COUNT).tolist()
    buffer.close()


@kinds
def test_read_is_shared_and_stays_read_only(make, stream, kind):
    buffer = make(kind, 8, "i4", COUNT)
    with buffer.read() as array:
        assert (array == COUNT).all()
        with pytest.raises(ValueError):
            array[0] = 1
        with pytest.raises(ValueError):
            array.flags.writeable = True
        make("device", 8, "i4").copy_from_async(buffer, stream)
        with buffer[4:].read() as part:
            assert part[0] == 4
        with pytest.raises(cu.BufferExportedError):
            buffer.fill_async(0, stream)
    buffer.fill_async(0, stream)


@kinds
@pytest.mark.parametrize("way", ["read", "write"])
def test_the_array_is_revoked(make, kind, way):
    buffer = make(kind, 8, "i4", COUNT)
    with getattr(buffer, way)() as array:
        pass
    assert array.shape == (0,)
    with pytest.raises(IndexError):
        array[0]
    buffer.close()


@kinds
def test_temporary_views_and_copies_do_not_matter(make, kind):
    buffer = make(kind, 8, "i4", COUNT)
    with buffer.read() as array:
        kept = array[2:4].copy()
        total = array.reshape(2, 4).sum(axis=0)
        part = array[1:]
        del part
    assert kept.tolist() == [2, 3]
    assert total.tolist() == [4, 6, 8, 10]
    buffer.close()


@kinds
@pytest.mark.parametrize(
    "keep",
    [
        memoryview,
        lambda array: array[2:4].data,
        np.ma.masked_array,
        lambda array: array.reshape(2, 4).flat,
        lambda array: [array.T.__dlpack__()],
    ],
    ids=["memoryview", "memoryview of a view", "masked", "flat", "in a list"],
)
def test_what_escapes_is_found(make, stream, kind, keep):
    buffer = make(kind, 8, "i4", COUNT)
    with pytest.raises(cu.BufferExportedError, match=r"test_host_blocks\.py:\d+ is still referred"):
        with buffer.write() as array:
            kept = keep(array)
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, stream)
    del kept, array
    buffer.fill_async(0, stream)


@kinds
def test_an_exception_on_its_way_gets_a_note(make, kind):
    buffer = make(kind, 8, "i4", COUNT)
    kept = []

    def fail_in_a_block():
        with buffer.write() as array:
            kept.append(memoryview(array[1:]))
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        fail_in_a_block()
    (note,) = raised.value.__notes__
    assert note.startswith("cudadrv: the array of the `with` block at ")
    assert "is still referred to by" in note
    kept.clear()
    del raised
    buffer.close()


@kinds
def test_an_exception_without_findings_has_no_note(make, kind):
    buffer = make(kind, 8, "i4", COUNT)

    def fail_in_a_block():
        with buffer.write() as array:
            array[0] = 1
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        fail_in_a_block()
    assert not hasattr(raised.value, "__notes__")
    buffer.close()


@kinds
def test_the_gpu_is_asked_first(make, stream, gate, kind):
    buffer, device = make(kind, 8, "i4", COUNT), make("device", 8, "i4")
    gate.hold(stream)
    buffer.copy_to_async(device, stream)
    with buffer.read() as array:
        assert array[3] == 3
    with pytest.raises(cu.BufferBorrowedError, match="cannot write"):
        buffer.write().__enter__()
    gate.open()
    with cu.ordering("wait"), buffer.write() as array:
        array[:] = 0


def test_a_block_is_entered_once(make):
    buffer = make("locked", 8)
    block = buffer.read()
    with block:
        with pytest.raises(RuntimeError, match="entered already"):
            block.__enter__()
    with pytest.raises(RuntimeError, match="ended already"):
        block.__exit__(None, None, None)
    with block as array:
        assert array.size == 8


def test_closed_buffers_give_no_arrays(make):
    buffer = make("locked", 8)
    buffer.close()
    for way in (buffer.read, buffer.write, buffer.readonly, buffer.to_numpy):
        with pytest.raises(cu.BufferClosedError, match="was closed at"):
            way()


def test_two_threads_enter_one_block(stream, gate):
    """While one thread waits to enter, the block counts as entered."""
    host, device = cu.LockedBuffer.zeros(8), cu.DeviceBuffer.zeros(8)
    gate.hold(stream)
    device.copy_to_async(host, stream)
    block, found = host.read(), []

    def enter():
        with cu.ordering("wait"):
            found.append(block.__enter__())

    waiting = threading.Thread(target=enter)
    waiting.start()
    refused = ""
    while not refused:
        try:
            block.__enter__()
        except cu.BufferBorrowedError:
            time.sleep(0.001)  # the other thread has not begun
        except RuntimeError as error:
            refused = str(error)
    assert "has been entered already" in refused
    gate.open()
    waiting.join()
    assert len(found) == 1
    block.__exit__(None, None, None)
    stream.synchronize()
