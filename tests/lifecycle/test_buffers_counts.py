"""Valid and invalid arguments of buffers: counts, names, dtypes, devices, addresses."""

import numpy as np
import pytest

import cudadrv as cu

CLASSES = pytest.mark.parametrize("cls", [cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer])


class Index:
    def __index__(self):
        return 3


@CLASSES
def test_counts(cls):
    for count in (3, np.int32(3), np.uint64(3), Index()):
        buffer = cls(count, "f4")
        assert (buffer.count, len(buffer), buffer.nbytes, buffer.itemsize) == (3, 3, 12, 4)
    assert cls(True).count == 1
    for count in (1.0, "1", None, [3], np.float64(3)):
        with pytest.raises(TypeError, match="count must be an integer"):
            cls(count)
    with pytest.raises(TypeError, match=r"not \(3, 4\); for memory with a shape, call"):
        cls((3, 4))
    with pytest.raises(ValueError, match="must not be negative, and is -1"):
        cls(-1)
    for count in (2**61, 2**63, 10**30):
        with pytest.raises(ValueError, match="8-byte items"):
            cls(count, "f8")


@pytest.mark.cuda_software
@CLASSES
def test_more_than_there_is(cls):
    with pytest.raises(cu.CudaOutOfMemoryError) as error:
        cls(2**50, name="huge")
    assert isinstance(error.value, MemoryError)
    assert f"{2**50} bytes were requested for {cls.__name__} 'huge'" in str(error.value)


@CLASSES
def test_empty_buffers_need_no_memory(cls):
    before = len(cu.live_buffers())
    buffer = cls(0, "f8", name="none")
    assert buffer.address == 0
    assert len(cu.live_buffers()) == before
    assert buffer[:].count == buffer.view("u1").count == 0
    assert buffer.into_raw() == 0
    assert cls.from_raw(0, 0).count == 0
    with cls(0) as other:
        pass
    assert other.closed


@CLASSES
def test_names(cls):
    buffer = cls(4, "i2", name="frames")
    assert buffer.name == buffer[1:].name == "frames"
    assert repr(buffer) == f"<{cls.__name__} 'frames' 4 x int16>"
    assert cu.live_buffers()[0].label == f"{cls.__name__} 'frames'"
    assert "test_buffers_counts.py:" in cu.live_buffers()[0].site
    with pytest.raises(TypeError, match="name must be a str, not int"):
        cls(4, name=4)
    buffer.close()
    assert repr(buffer) == f"<{cls.__name__} 'frames' closed>"


@CLASSES
def test_devices(cls):
    device = cu.Device(0)
    assert cls(1, device=device).device == device
    assert cls(1).context is device.context
    with pytest.raises(TypeError, match="device must be a Device, not int"):
        cls(1, device=0)


def test_bases_are_not_made():
    for cls in (cu.Buffer, cu.HostBuffer):
        with pytest.raises(TypeError, match="use DeviceBuffer, LockedBuffer or UnifiedBuffer"):
            cls()


@CLASSES
def test_what_was_never_made_refuses(cls):
    buffer = cls.__new__(cls)
    for use in (
        lambda: buffer.address,
        lambda: buffer[:],
        lambda: buffer.fill(0),
        lambda: buffer.copy_from(b""),
        buffer.take,
    ):
        with pytest.raises(TypeError, match="never initialized"):
            use()
    buffer.close()
    repr(buffer)
    made = cls(1)
    with pytest.raises(TypeError, match="initialized already"):
        made.__init__(2)
    assert made.count == 1


# ---- parts ----


@CLASSES
def test_slices(cls):
    buffer = cls(10, "i4")
    for part, offset, count in (
        (buffer[2:5], 2, 3), (buffer[-3:], 7, 3), (buffer[:-8], 0, 2), (buffer[5:2], 5, 0),
        (buffer[20:], 10, 0), (buffer[2:8][1:3], 3, 2), (buffer[np.int8(1):Index()], 1, 2),
    ):  # fmt: skip
        assert (part.address - buffer.address, part.count) == (4 * offset, count)
        assert (part.nbytes, part.context) == (4 * count, buffer.context)
    for step in (2, -1):
        with pytest.raises(ValueError, match=f"step of a slice must be 1, not {step}"):
            buffer[::step]


@CLASSES
def test_split_and_chunks(cls):
    buffer = cls(10, "i4")
    assert [part.count for part in buffer.split_at(3)] == [3, 7]
    assert [part.count for part in buffer.split_at(10)] == [10, 0]
    for index in (-1, 11):
        with pytest.raises(ValueError, match=f"cannot split 10 items at {index}"):
            buffer.split_at(index)
    assert [part.count for part in buffer.chunks(4)] == [4, 4, 2]
    assert [part.count for part in buffer.chunks(2**70)] == [10]
    assert buffer[:0].chunks(3) == []
    with pytest.raises(ValueError, match="at least 1 item"):
        buffer.chunks(0)
    for call in (buffer.split_at, buffer.chunks):
        with pytest.raises(TypeError):
            call(1.0)


@CLASSES
def test_views(cls):
    buffer = cls(16, "u1")
    assert buffer.view("f4").count == 4
    assert buffer.view("f4").dtype == np.float32
    assert buffer.view("V16").view("u1")[3:5].address == buffer.address + 3
    with pytest.raises(ValueError, match="16 bytes are no whole number"):
        buffer.view("V3")
    with pytest.raises(ValueError, match="starts at byte 2, and float32 needs a multiple of 4"):
        buffer[2:6].view("f4")
    assert buffer[2:6].view(np.dtype([("a", "f4")])).count == 1  # a packed dtype needs no alignment
    with pytest.raises(TypeError, match="Python objects"):
        buffer.view("O")


# ---- addresses ----


@CLASSES
def test_raw_addresses_go_out_and_come_back(cls):
    buffer = cls(8, "i4")
    buffer.copy_from(np.arange(8, dtype="i4"))
    address = buffer.into_raw()
    assert buffer.closed
    with pytest.raises(cu.BufferClosedError, match=r"was moved at .*counts\.py:\d+; use what"):
        buffer.fill(0)
    back = cls.from_raw(address, 8, "i4", name="back")
    found = np.empty(8, "i4")
    back.copy_to(found)
    assert found.tolist() == list(range(8))
    back.close()


@CLASSES
def test_a_whole_with_parts_is_not_given_away(cls):
    buffer = cls(8)
    part = buffer[:4]
    moved = buffer[4:].take()
    with pytest.raises(cu.BufferBorrowedError, match=r"parts of it are alive \(2\)"):
        buffer.into_raw()
    with pytest.raises(ValueError, match="is a part"):
        part.into_raw()
    del part, moved
    cls.from_raw(buffer.into_raw(), 8)


def test_stream_ordered_memory_goes_out_and_comes_back(stream, other):
    buffer = cu.DeviceBuffer(8, stream=stream)
    with pytest.raises(cu.BufferBorrowedError, match="its allocation"):
        buffer.into_raw()
    stream.synchronize()
    address = buffer.into_raw()
    back = cu.DeviceBuffer.from_raw(address, 8)
    with pytest.raises(ValueError, match="lies in a live DeviceBuffer"):
        cu.DeviceBuffer.from_raw(address + 4, 4)
    back.fill_async(1, other)
    with pytest.raises(cu.BufferBorrowedError):
        back.close()
    other.synchronize()
    back.close()


@CLASSES
def test_borrowed_memory_is_not_given_away(cls):
    memory = cls(8)
    buffer = cls.from_address(memory.address, 8, owner=memory)
    with pytest.raises(ValueError, match="cannot give it away; its owner can"):
        buffer.into_raw()
    assert not buffer.closed
    buffer.fill(1)


class Owner:
    pass


@CLASSES
def test_foreign_memory_is_never_freed(cls):
    import weakref

    memory = cls(64)
    owner = Owner()
    alive = weakref.ref(owner)
    buffer = cls.from_address(memory.address, 16, "i4", owner=owner)
    del owner
    buffer.fill(3)
    part = buffer[2:]
    del buffer
    assert alive()
    del part
    assert not alive()
    cls.from_address(memory.address, 64, owner=memory).close()
    memory.fill(0)
    memory.close()


@pytest.mark.cuda_software
def test_the_owner_outlives_the_work(stream, gate):
    import weakref

    memory, owner = cu.DeviceBuffer(8), Owner()
    alive = weakref.ref(owner)
    buffer = cu.DeviceBuffer.from_address(memory.address, 8, owner=owner)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    del owner, buffer
    cu.DeviceBuffer(1)  # an allocation releases what can be released
    assert alive()
    gate.open()
    stream.synchronize()
    cu.reap()
    assert not alive()


@CLASSES
def test_wrong_addresses_are_refused(cls):
    memory = {kind: kind(64) for kind in (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer)}
    ordinary = np.zeros(64, "u1")
    for kind, buffer in memory.items():
        if kind is not cls:
            with pytest.raises(ValueError, match=f"which a {cls.__name__} needs"):
                cls.from_address(buffer.address, 64)
    with pytest.raises(ValueError, match="none of the driver's"):
        cls.from_raw(ordinary.ctypes.data, 64)
    for address in (0, -8, 2**63, 2**70):
        with pytest.raises(ValueError, match="there cannot be items"):
            cls.from_address(address, 1)
    with pytest.raises(ValueError, match="there cannot be items of dtype int32"):
        cls.from_address(memory[cls].address + 2, 1, "i4")
    with pytest.raises(TypeError):
        cls.from_address("0x1000", 1)


def test_memory_of_a_dead_buffer_is_not_taken_twice(stream, gate):
    """`from_raw` refuses memory of a dropped buffer that is not released yet.

    Otherwise two owners would free it.
    """
    buffer = cu.DeviceBuffer(8)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    address = buffer.address
    del buffer
    with pytest.raises(ValueError, match="of a buffer that has died"):
        cu.DeviceBuffer.from_raw(address, 8)
    gate.open()
    stream.synchronize()
