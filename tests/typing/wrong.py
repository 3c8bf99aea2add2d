"""Uses that type checkers must refuse: the lines that end with `# refused:` and mypy's reason."""

import numpy as np

import cudadrv as cu


def constructors() -> None:
    cu.Device("cuda:0")  # refused: arg-type
    cu.Stream(True)  # refused: call-arg
    cu.Stream(priority="high")  # refused: arg-type
    cu.Stream(device=0)  # refused: arg-type
    cu.Event(True)  # refused: call-arg
    cu.Context()  # refused: call-arg
    cu.Token()  # refused: call-arg
    cu.Kernel()  # refused: call-arg
    cu.Buffer()  # refused: call-arg
    cu.Buffer(4)  # refused: arg-type
    cu.HostBuffer(4)  # refused: arg-type
    cu.DeviceBuffer()  # refused: call-arg
    cu.DeviceBuffer(4.0)  # refused: arg-type
    cu.DeviceBuffer(4, stream=1)  # refused: arg-type
    cu.DeviceBuffer(4, "u1", None)  # refused: call-arg
    cu.LockedBuffer(4, stream=1)  # refused: arg-type
    cu.UnifiedBuffer.zeros(4, write_combined=True)  # refused: call-arg
    cu.LockedBuffer.zeros(4, write_combine=True)  # refused: call-arg
    cu.LockedBuffer.from_raw("address", 4)  # refused: arg-type


def policies(buffer: cu.Buffer) -> None:
    cu.ordering("foo")  # refused: arg-type
    cu.ordering(None)  # refused: arg-type
    buffer.ordering = "loose"  # refused: assignment
    buffer.context.ordering = False  # refused: assignment


def streams(stream: cu.Stream, event: cu.Event) -> None:
    stream.wait(3)  # refused: arg-type
    stream.synchronize(timeout="soon")  # refused: arg-type
    cu.Stream.from_object(3)  # refused: arg-type
    stream.wait(None)  # refused: arg-type
    stream.record(stream)  # refused: arg-type
    event.elapsed_ms(stream.record)  # refused: arg-type
    event.done()  # refused: operator
    stream.handle = 0  # refused: misc
    cu.Stream.from_handle("legacy")  # refused: arg-type


def copies(device: cu.DeviceBuffer, host: cu.LockedBuffer, stream: cu.Stream) -> None:
    array = np.zeros(4)
    device.copy_to_async(array, stream)  # refused: arg-type
    device.copy_from([1, 2, 3])  # refused: arg-type
    device.copy_from(array, stream)  # refused: call-arg
    device.copy_from_async(array, 0)  # refused: arg-type
    _token = device.copy_from(host)  # refused: func-returns-value
    _event: cu.Event = device.copy_from_async(host)  # refused: assignment
    device.fill([1, 2])  # refused: arg-type
    device.fill(1, stream)  # refused: call-arg


def parts(device: cu.DeviceBuffer, host: cu.LockedBuffer) -> None:
    _item = device[0.5]  # refused: index
    device[0] = 1  # refused: index
    _part = device[::2]  # refused: index
    _rows = host[0.5, 1]  # refused: index
    del host[0]  # refused: arg-type
    _other: cu.DeviceBuffer = host[1:]  # refused: assignment
    device.name = "frames"  # refused: misc


def host_access(device: cu.DeviceBuffer, host: cu.LockedBuffer) -> None:
    memoryview(device)  # refused: arg-type
    cu.LockedBuffer.from_array(device)  # refused: arg-type
    device.read()  # refused: attr-defined
    device.readonly()  # refused: attr-defined
    device.to_numpy(cu.Stream())  # refused: call-arg
    host.read().sum()  # refused: attr-defined


def textures(array: cu.Array) -> None:
    cu.Texture(array, filter="cubic")  # refused: arg-type
    cu.Texture(array, address="repeat")  # refused: arg-type
    cu.Texture([1, 2])  # refused: arg-type
    cu.Surface(cu.DeviceBuffer(1))  # refused: arg-type
    array.fill(0)  # refused: attr-defined


def subclasses() -> None:
    class Frames(cu.LockedBuffer):  # refused: misc
        pass

    class Queue(cu.Stream):  # refused: misc
        pass
