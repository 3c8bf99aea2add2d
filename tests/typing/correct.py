"""Uses that type checkers must accept, and that must run. test_typing.py executes this file."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import cudadrv as cu


def devices() -> None:
    info = cu.driver_info()
    major, _minor = info.version
    assert_type(major, int)
    device = cu.Device()
    assert device == cu.Device(np.int64(0))
    assert_type(device.attribute("multiprocessor_count"), int)
    assert_type(cu.Device.all(), tuple[cu.Device, ...])
    assert_type(cu.Device.current(), cu.Device)
    free, total = device.memory_info()
    assert free <= total
    assert_type(device.pci_bus_id, str)
    with device as same:
        assert_type(same, cu.Device)
    context: cu.Context = device.context
    context.ordering = "wait"
    context.ordering = None
    greatest, least = context.priority_range
    assert greatest <= least
    with cu.Context.create(device) as other:
        assert_type(other, cu.Context)


class Theirs:
    """A stream of another library."""

    def __init__(self, stream: cu.Stream) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream.handle


def streams() -> None:
    stream = cu.Stream(blocking=True, priority=0, device=cu.Device(0))
    event: cu.Event = stream.record()
    assert stream.record(event) is event
    other = cu.Stream(name="other")
    other.wait(event)
    other.wait(stream)
    other.wait(Theirs(stream))
    assert_type(cu.Stream.from_object(Theirs(stream)), cu.Stream)
    assert_type(cu.Stream.current(), cu.Stream | None)
    assert_type(cu.Event(name="ready").name, str | None)
    other.synchronize(timeout=10)
    cu.LockedBuffer(1).fill_async(0, Theirs(other)).wait(timeout=10.0)
    cu.DeviceBuffer(1, stream=Theirs(other)).close(Theirs(other))
    assert_type(cu.DeviceBuffer.zeros(1).to_numpy(stream=stream), npt.NDArray[Any])
    start, end = cu.Event(timing=True), cu.Event(timing=True, blocking_sync=True)
    stream.record(start)
    cu.DeviceBuffer(1).fill_async(0, stream)
    stream.record(end)
    stream.synchronize()
    assert_type(end.elapsed_ms(start), float)
    version, handle = stream.__cuda_stream__()
    assert version == 0
    assert cu.Stream.from_handle(handle) is stream
    assert int(stream) == handle
    with stream as current:
        assert_type(current, cu.Stream)
    for each in (other, cu.Stream.legacy(), cu.Stream.per_thread(device=cu.Device(0))):
        each.synchronize()
        assert each.done
    event.close()


def kinds() -> Iterator[cu.Buffer]:
    yield cu.DeviceBuffer(16, np.float32, stream=None, device=cu.Device(0), name="device")
    yield cu.LockedBuffer(16, "f4", write_combined=True)
    yield cu.UnifiedBuffer(16, dtype=np.dtype("f4"), name=None)


def classes() -> None:
    for kind in (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer):
        kind.zeros(4, "f4", name="zeros").close()
    stream = cu.Stream()
    ordered = cu.DeviceBuffer(8, stream=stream)
    ordered.close(stream)
    stream.synchronize()
    cu.DeviceBuffer.from_array([1.0, 2.0], stream=stream)
    locked = cu.LockedBuffer.from_array(np.arange(4), write_combined=False)
    assert_type(locked, cu.LockedBuffer)
    lent = cu.LockedBuffer.from_address(locked.address, locked.count, locked.dtype, owner=locked)
    lent.close()
    count, dtype = locked.count, locked.dtype
    address = locked.into_raw()
    cu.LockedBuffer.from_raw(address, count, dtype, name="again").close()
    assert isinstance(cu.UnifiedBuffer(1), cu.HostBuffer)


def copies() -> None:
    stream = cu.Stream()
    array = np.arange(16, dtype="f4")
    for buffer in kinds():
        with buffer:
            buffer.copy_from(array)
            buffer.copy_from(memoryview(array.tobytes()).cast("f"), stream=stream)
            buffer.copy_to(array)
            buffer.view("u1").copy_to(bytearray(64))
            buffer.view("u1").copy_from(bytes(64))
            token: cu.Token = buffer.fill_async(np.float32(1), stream)
            stream.synchronize()
            buffer.fill(2)
            buffer.ordering = "unchecked"
            assert token.done
            assert token.writes[0] is buffer
    device, locked = cu.DeviceBuffer(16), cu.LockedBuffer(16)
    tokens = [device.copy_from_async(locked, stream), device.copy_to_async(locked, stream)]
    with stream:
        tokens.append(locked.copy_to_async(device))
    for borrow in device.borrows:
        assert borrow.mode in ("read", "write")
        assert_type(borrow.start, int)
    device.explain()
    tokens[-1].wait()
    cu.Stream().wait(tokens[-1])
    stream.synchronize()


def places() -> None:
    stream, device = cu.Stream(), cu.Device(0)
    shared = cu.UnifiedBuffer(16, "f4")
    assert shared.to(device, stream=stream) is shared
    stream.synchronize()
    assert_type(shared.to("host", kind="locked"), cu.LockedBuffer)
    assert_type(shared.to(device, kind="device", copy=True), cu.DeviceBuffer)
    assert_type(shared.to("host", kind="unified"), cu.UnifiedBuffer)
    assert_type(cu.DeviceBuffer(1).to("host"), cu.DeviceBuffer | cu.LockedBuffer | cu.UnifiedBuffer)


def captured() -> None:
    stream = cu.Stream()
    x, y = np.zeros(4, "f4"), np.zeros(4)
    with cu.offload(x, out=y, inout=[np.ones(2)], stream=stream) as buffers:
        assert_type(buffers, tuple[cu.DeviceBuffer, ...])
        for buffer in buffers:
            buffer.fill_async(1, stream)
    assert y[0] == 1
    assert repr(cu.In(x)) + repr(cu.Out(y)) + repr(cu.InOut(x))


def parts() -> None:
    locked = cu.LockedBuffer(16, "u2")
    assert_type(locked[2:8], cu.LockedBuffer)
    assert_type(locked[:], cu.LockedBuffer)
    assert_type(locked[slice(1, 2)], cu.LockedBuffer)
    left, right = locked.split_at(np.int32(8))
    assert_type(left, cu.LockedBuffer)
    assert len(left) == len(right)
    assert_type(locked.chunks(4), list[cu.LockedBuffer])
    assert_type(cu.DeviceBuffer(4).view(np.uint16), cu.DeviceBuffer)
    assert_type(locked.take(), cu.LockedBuffer)


def host() -> None:
    for buffer in (cu.LockedBuffer(4, "f8"), cu.UnifiedBuffer(4, "f8")):
        buffer[0] = 1
        buffer[1:3] = [2.0, 3.0]
        buffer[3:] = np.float64(4)
        item: float = buffer[-1]
        assert item == 4
        with buffer.write() as array:
            assert_type(array, npt.NDArray[Any])
            array += 1
        del array
        with buffer.read() as array:
            total = array.sum()
        del array
        assert total == 14
        with memoryview(buffer) as view:
            assert view.nbytes == buffer.nbytes
        with memoryview(buffer.readonly()) as view:
            assert view.readonly
        assert_type(buffer.to_numpy(), npt.NDArray[Any])
        np.asarray(buffer)
        assert not buffer.borrowed


def policies() -> None:
    with cu.ordering("wait") as policy:
        assert policy.policy == "wait"


PTX = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry put(.param .u64 out, .param .u32 value) {
    .reg .u64 a; .reg .u32 v;
    ld.param.u64 a, [out]; ld.param.u32 v, [value];
    st.global.u32 [a], v; ret;
}
"""


def kernels() -> None:
    with cu.Module(PTX, name="put", max_registers=32) as module:
        kernel = module["put"]
        assert_type(kernel, cu.Kernel)
        assert_type(kernel.attributes.registers, int)
        assert [parameter.name for parameter in kernel.parameters or ()] == ["out", "value"]
        stream, out = cu.Stream(), cu.DeviceBuffer(1, "u4")
        token = kernel.launch(1, (1, 1), cu.write(out), np.uint32(3), stream=stream, borrows=[out])
        assert_type(token.writes, tuple[cu.Buffer, ...])
        ready = kernel.prepare((1,), 1, out, 3)
        assert_type(ready.launch(stream), cu.Token)
        stream.synchronize()
    error = cu.CudaImageError(218, "cuModuleLoadDataEx", "detail", "log")
    assert_type(error.log, str)


def textures() -> None:
    stream = cu.Stream()
    array = cu.Array((4, 8), "u4", surface=True, mipmaps=2, name="image")
    level = array.level(0)
    assert_type(level, cu.Array)
    assert_type(level[1:3, 2], cu.Array)
    level.copy_from(np.zeros((4, 8), "u4"))
    assert_type(level.copy_to_async(cu.LockedBuffer(32, "u4"), stream), cu.Token)
    assert_type(level.to_numpy(), npt.NDArray[Any])
    with cu.Texture(array, normalized=True, address=("wrap", "clamp")) as texture:
        assert_type(texture, cu.Texture)
        assert_type(texture.source, cu.Array | cu.Buffer)
    assert_type(cu.Texture(cu.DeviceBuffer(64, "f4")).handle, int)
    assert_type(cu.Surface(level).source, cu.Array)
    assert_type(cu.Array.from_array(np.zeros(2, "f4"), name="row").channels, int)
    stream.synchronize()


def errors() -> None:
    error = cu.CudaError(2, "cuMemAlloc", "detail")
    assert error.status is cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    assert_type(error.call, str)
    assert_type(cu.ContextLostError(700, "cuEventQuery").suspects, tuple[str, ...])
    with suppress(cu.OwnershipError, ValueError):
        cu.DeviceBuffer(1)[:].close()


def reports() -> None:
    kept = cu.DeviceBuffer(1, name="kept")
    sizes = {buffer.label: buffer.nbytes for buffer in cu.live_buffers()}
    assert sizes[f"DeviceBuffer {kept.name!r}"] == 1
    assert cu.memory_report()
    assert cu.get_include()
    cu.reap()


async def completion(token: cu.Token, event: cu.Event, stream: cu.Stream) -> None:
    await token
    await event
    await stream
    async with stream.scope() as same:
        assert_type(same, cu.Stream)


USES = (
    *(devices, streams, classes, copies, places, captured),
    *(parts, host, policies, kernels, textures),
)
if __name__ == "__main__":
    for use in (*USES, errors, reports):
        use()
