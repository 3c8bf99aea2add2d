"""Driver calls that fail: the error names the call, and the state is unchanged."""

import numpy as np
import pytest

import cudadrv as cu

pytestmark = pytest.mark.cuda_software
INVALID = 1
NO_MEMORY = 2


@pytest.fixture
def fault(driver):
    """Make the next call of a driver function fail. After the test no call fails."""
    from cudadrv import testing

    def fault(function, nth=1, status=INVALID):
        testing.configure(f"fault={function}:{nth}:{status}")

    yield fault
    testing.configure("fault=none")


def name_of(value):
    """A test id for a parameter: lambdas get an empty one."""
    return value if isinstance(value, str) else ""


ALLOCATIONS = [
    ("cuMemAlloc_v2", "cuMemAlloc", lambda stream: cu.DeviceBuffer(8)),
    ("cuMemAllocAsync", "cuMemAllocAsync", lambda stream: cu.DeviceBuffer(8, stream=stream)),
    ("cuMemHostAlloc", "cuMemHostAlloc", lambda stream: cu.LockedBuffer(8)),
    ("cuMemAllocManaged", "cuMemAllocManaged", lambda stream: cu.UnifiedBuffer(8)),
]


@pytest.mark.parametrize(("function", "call", "make"), ALLOCATIONS, ids=name_of)
def test_allocation(fault, stream, function, call, make):
    before = len(cu.live_buffers())
    fault(function)
    with pytest.raises(cu.CudaError) as error:
        make(stream)
    assert error.value.call == call
    assert error.value.status == INVALID
    assert len(cu.live_buffers()) == before
    make(stream)


@pytest.mark.parametrize(("function", "call", "make"), ALLOCATIONS, ids=name_of)
def test_out_of_memory_once_is_tried_again(fault, stream, function, call, make):
    fault(function, status=NO_MEMORY)
    make(stream)


def test_out_of_memory_gives_back_what_has_died(stream, gate):
    """An allocation that does not fit waits for users of dropped memory, and frees this."""
    import threading

    from cudadrv import testing

    kept = cu.DeviceBuffer(1000, name="kept")
    testing.configure("memory=4MiB")
    try:
        dying = cu.DeviceBuffer(3 << 20)
        gate.hold(stream)
        dying.fill_async(1, stream)
        del dying
        threading.Timer(0.05, gate.open).start()
        again = cu.DeviceBuffer(3 << 20)
        with pytest.raises(cu.CudaOutOfMemoryError) as error:
            cu.DeviceBuffer(3 << 20, name="more")
        assert f"{3 << 20} bytes were requested for DeviceBuffer 'more'" in str(error.value)
        assert f"  {3 << 20} bytes in 1 device buffer, made at" in str(error.value)
        assert "1000 bytes in 1 device buffer, made at" in str(error.value)
        again.close()
        cu.DeviceBuffer(3 << 20)
    finally:
        testing.configure("memory=1GiB")
    kept.close()


def columns_of(buffer, first):
    """Two columns of a buffer of 8 bytes, as a box."""
    return buffer.reshape(2, 4)[:, first : first + 2]


OPERATIONS = [
    ("cuMemcpyHtoDAsync_v2", lambda d, k, h, s: d.copy_from_async(h, s)),
    ("cuMemcpyHtoDAsync_v2", lambda d, k, h, s: d.copy_from_async(bytes(8), s)),
    ("cuMemcpyHtoDAsync_v2", lambda d, k, h, s: d.copy_from(bytes(8))),
    ("cuMemcpyDtoHAsync_v2", lambda d, k, h, s: h.copy_from_async(d, s)),
    ("cuMemcpyDtoHAsync_v2", lambda d, k, h, s: d.copy_to(bytearray(8))),
    ("cuMemcpyDtoDAsync_v2", lambda d, k, h, s: d.copy_from_async(k, s)),
    ("cuMemcpyAsync", lambda d, k, h, s: h.copy_from_async(bytes(8), s)),
    (
        "cuMemcpyBatchAsync",
        lambda d, k, h, s: cu.copy_batch([(d[:4], h[4:]), (d[4:], h[:4])], s),
    ),
    (
        "cuMemcpyAsync",  # the driver takes no batch on this stream
        lambda d, k, h, s: cu.copy_batch([(d[:4], h[4:]), (d[4:], h[:4])], cu.Stream.legacy()),
    ),
    (
        "cuMemcpy2DAsync_v2",
        lambda d, k, h, s: columns_of(d, 2).copy_from_async(columns_of(k, 1), s),
    ),
    (
        "cuMemcpy2DAsync_v2",
        lambda d, k, h, s: cu.copy_batch([(columns_of(d, 0), columns_of(k, 1))], s),
    ),
    ("cuMemsetD2D8Async", lambda d, k, h, s: columns_of(d, 1).fill_async(1, s)),
    ("cuMemsetD8Async", lambda d, k, h, s: d.fill_async(1, s)),
    ("cuMemsetD8Async", lambda d, k, h, s: d.fill(1)),
    ("cuMemsetD2D32Async", lambda d, k, h, s: d.view("i8").fill_async(1, s)),
]


@pytest.mark.parametrize(("function", "operate"), OPERATIONS, ids=name_of)
def test_operations(fault, stream, other, function, operate):
    device, source, locked = cu.DeviceBuffer(8), cu.DeviceBuffer(8), cu.LockedBuffer(8)
    device.copy_from(b"unharmed")
    fault(function)
    with pytest.raises(cu.CudaError) as error:
        operate(device, source, locked, stream)
    assert error.value.call == function.removesuffix("_v2")
    assert not device.borrowed
    assert not source.borrowed
    assert not locked.borrowed
    found = bytearray(8)
    device.copy_to(found)
    assert found == b"unharmed"
    operate(device, source, locked, other)
    other.synchronize()


@pytest.mark.parametrize(("dtype", "nth"), [("i8", 2), ("c16", 2), ("c16", 4)])
def test_half_a_fill_keeps_its_borrow(fault, stream, other, dtype, nth):
    buffer = cu.DeviceBuffer(4, dtype)
    fault("cuMemsetD2D32Async", nth=nth)
    with pytest.raises(cu.CudaError):
        buffer.fill_async(1, stream)
    assert [borrow.operation for borrow in buffer.borrows] == ["fill_async"]
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(0, other)
    stream.synchronize()
    buffer.close()


def test_a_copy_that_fails_in_the_middle(fault, stream):
    buffer, data = cu.DeviceBuffer(4 << 20), np.full(4 << 20, 7, "u1")
    buffer.fill(0)
    fault("cuMemcpyHtoDAsync_v2", nth=3)
    with pytest.raises(cu.CudaError):
        buffer.copy_from(data, stream=stream)
    stream.synchronize()
    assert not buffer.borrowed
    buffer.copy_from(data, stream=stream)
    found = np.zeros_like(data)
    buffer.copy_to(found)
    assert (found == 7).all()


@pytest.mark.parametrize("kind", ["device", "stream_ordered", "locked", "unified"])
def test_a_free_that_fails(fault, stream, kind):
    function, buffer = {
        "device": lambda: ("cuMemFree_v2", cu.DeviceBuffer(8, pooled=False)),
        "stream_ordered": lambda: (
            "cuMemFreeAsync",
            cu.DeviceBuffer(8, stream=stream, pooled=False),
        ),
        "locked": lambda: ("cuMemFreeHost", cu.LockedBuffer(8, pooled=False)),
        "unified": lambda: ("cuMemFree_v2", cu.UnifiedBuffer(8, pooled=False)),
    }[kind]()
    for status in (INVALID, NO_MEMORY):
        fault(function, status=status)
        with pytest.raises(cu.CudaError) as error:
            buffer.close()
        assert error.value.call == function.removesuffix("_v2")
        assert not buffer.closed
        assert len(cu.live_buffers()) >= 1
    buffer.fill(1, stream=stream)
    buffer.close()


def test_a_destructor_warns(fault):
    buffer = cu.DeviceBuffer(8, pooled=False)
    address = buffer.address
    del buffer
    fault("cuMemFree_v2")
    with pytest.warns(cu.CudaWarning, match="cuMemFree: CUDA_ERROR_INVALID_VALUE"):
        cu.reap()
    cu.DeviceBuffer.from_raw(address, 8).close()


def test_a_stage_is_not_used_again_too_early(fault, stream, gate):
    """A stage is not reused if the event behind its copy could not be recorded.

    Without the event, cudadrv cannot know when the GPU has read the stage.
    """
    first, second = cu.DeviceBuffer(1000), cu.DeviceBuffer(1000)
    first.copy_from(bytes(1000))
    gate.hold(stream)
    fault("cuEventRecord")
    with pytest.raises(cu.CudaError) as error:
        first.copy_from_async(b"a" * 1000, stream)
    assert error.value.call == "cuEventRecord"
    assert first.borrowed
    second.copy_from(b"b" * 1000)
    gate.open()
    stream.synchronize()
    found = bytearray(1000)
    first.copy_to(found)
    assert found == b"a" * 1000
