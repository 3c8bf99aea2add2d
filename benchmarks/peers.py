"""The same calls through cudadrv and other bindings: names and a statement for each row.

Each binding gets the cheapest spelling that its documentation shows, and prepares everything that
can be prepared. If the documentation shows several, all are tried, and the fastest one counts.
Statements run with their names as local variables.
"""

import sys
from contextlib import suppress

NBYTES = 4096
LARGE = 1 << 20
PITCH = 1024  # bytes of a row, for copies of boxes: the left half of 16 rows to the right half
KERNEL = "nothing"
# An empty kernel with four parameters: void nothing(int, float, float *, float *) in C.
PTX = f"""\
.version 6.4
.target sm_52
.address_size 64
.visible .entry {KERNEL}(.param .u32 count, .param .f32 factor, .param .u64 x, .param .u64 y)
{{
    ret;
}}
"""


class Peer:
    """The statements of each row, with the names that they use; and how to wait for all work."""

    def __init__(self, settle, rows, **names):
        self.settle, self.names = settle, names
        self.rows = {row: [way] if isinstance(way, str) else way for row, way in rows.items()}


def cudadrv():
    import cudadrv as cu

    stream, event = cu.Stream(), cu.Event()
    host = cu.LockedBuffer.zeros(NBYTES)
    device, other = cu.DeviceBuffer.zeros(NBYTES), cu.DeviceBuffer.zeros(NBYTES)
    stream.record(event)
    rows = {
        "h2d": "device.copy_from_async(host, stream)",
        "d2h": "device.copy_to_async(host, stream)",
        "d2d": "other.copy_from_async(device, stream)",
        "fill": "device.fill_async(0, stream)",
        "box": "right.copy_from_async(left, stream)",
        "1 part": "part.copy_from_async(of_part, stream)",
        "record": "stream.record(event)",
        "wait": "stream.wait(event)",
        "synchronize": "stream.synchronize()",
        "h2d and wait": "device.copy_from_async(host, stream); stream.synchronize()",
        "launch": "kernel.launch(1, 32, 32, 2.0, device, other, stream=stream)",
        "launch prepared": "prepared.launch(stream)",
        "call": "stream.call(nothing)",
        "call and wait": "stream.call(nothing); stream.synchronize()",
        "locked memory": "locked(1048576)",
        "device memory": "memory(1048576)",
        "device memory on a stream": "memory(1048576, stream=stream)",
    }
    kernel = cu.Module(PTX)[KERNEL]
    many, of_many = cu.DeviceBuffer.zeros(LARGE), cu.LockedBuffer.zeros(LARGE)
    pairs = list(zip(many.chunks(NBYTES), of_many.chunks(NBYTES), strict=True))
    image, other_image = (cu.DeviceBuffer.zeros(LARGE).reshape(-1, PITCH) for _ in range(2))
    names = {f"pairs_{count}": pairs[:count] for count in (8, 64, 256)}
    for name in names:
        count = name.removeprefix("pairs_")
        rows[f"batch {count}"] = f"copy_batch({name}, stream)"
        rows[f"singles {count}"] = f"for to, of in {name}: to.copy_from_async(of, stream)"
    return Peer(
        stream.synchronize, rows, stream=stream, event=event, host=host, device=device,
        right=other_image[:16, 512:768], left=image[:16, :256], part=pairs[1][0],
        of_part=pairs[1][1], copy_batch=cu.copy_batch, **names,
        other=other, locked=cu.LockedBuffer, memory=cu.DeviceBuffer, kernel=kernel,
        prepared=kernel.prepare(1, 32, 32, 2.0, device, other), nothing=lambda: None,
    )  # fmt: skip


def cuda_bindings():
    import ctypes

    import numpy as np
    from cuda.bindings import driver

    import cudadrv as cu

    with cu.Device(0):
        host = cu.LockedBuffer.zeros(NBYTES)
        device, other = cu.DeviceBuffer.zeros(NBYTES), cu.DeviceBuffer.zeros(NBYTES)
        _, stream = driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        _, event = driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        _, module = driver.cuModuleLoadData(PTX.encode() + b"\0")
    driver.cuEventRecord(event, stream)
    _, kernel = driver.cuModuleGetFunction(module, KERNEL.encode())
    first, second = (driver.CUdeviceptr(buffer.address) for buffer in (device, other))
    # Two documented forms: values with their types, and addresses of packed values.
    arguments = ((32, 2.0, first, second), (ctypes.c_int, ctypes.c_float, None, None))
    values = [np.int32(32), np.float32(2), np.uint64(device.address), np.uint64(other.address)]
    cells = [np.array([value]) for value in values]
    packed = np.array([cell.ctypes.data for cell in cells], np.uint64)
    launch = "launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, {}, 0)"
    rows = {
        "h2d": "h2d(first, source, 4096, stream)",
        "d2h": "d2h(source, first, 4096, stream)",
        "d2d": "d2d(second, first, 4096, stream)",
        "fill": "fill(first, 0, 4096, stream)",
        "box": "copy_box(box, stream)",
        "1 part": "h2d(to, of, 4096, stream)",
        "record": "record(event, stream)",
        "wait": "wait(stream, event, 0)",
        "synchronize": "synchronize(stream)",
        "h2d and wait": "h2d(first, source, 4096, stream); synchronize(stream)",
        "launch": launch.format("arguments"),
        "launch prepared": launch.format("packed"),
        "locked memory": "free_host(allocate_host(1048576, 1)[1])",
        "device memory": "free(allocate(1048576, stream)[1], stream)",
        "device memory on a stream": "free(allocate(1048576, stream)[1], stream)",
    }
    with cu.Device(0):
        many, of_many = cu.DeviceBuffer.zeros(LARGE), cu.LockedBuffer.zeros(LARGE)
    box = driver.CUDA_MEMCPY2D()
    box.srcMemoryType = box.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    box.srcDevice, box.dstDevice = (driver.CUdeviceptr(many.address + at) for at in (0, PITCH // 2))
    box.srcPitch = box.dstPitch = PITCH
    box.WidthInBytes, box.Height = 256, 16
    attributes, names = driver.CUmemcpyAttributes(), {}
    attributes.srcAccessOrder = driver.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    for count in (8, 64, 256):
        places = [
            [driver.CUdeviceptr(buffer.address + NBYTES * i) for i in range(count)]
            for buffer in (many, of_many)
        ]
        names[f"of_{count}"] = (*places, [NBYTES] * count, count, [attributes], [0], 1, stream)
        rows[f"batch {count}"] = f"batch(*of_{count})"
        rows[f"singles {count}"] = f"for to, of in zip(*of_{count}[:2]): h2d(to, of, 4096, stream)"
    return Peer(
        lambda: driver.cuStreamSynchronize(stream), rows, stream=stream, event=event,
        copy_box=driver.cuMemcpy2DAsync, box=box, batch=driver.cuMemcpyBatchAsync,
        to=driver.CUdeviceptr(many.address), of=of_many.address, keep_more=(many, of_many), **names,
        first=first, second=second, source=host.address, kernel=kernel, arguments=arguments,
        packed=packed.ctypes.data, keep=(host, device, other, cells, packed),
        h2d=driver.cuMemcpyHtoDAsync, d2h=driver.cuMemcpyDtoHAsync, d2d=driver.cuMemcpyDtoDAsync,
        fill=driver.cuMemsetD8Async, record=driver.cuEventRecord, wait=driver.cuStreamWaitEvent,
        synchronize=driver.cuStreamSynchronize, launch=driver.cuLaunchKernel,
        allocate_host=driver.cuMemHostAlloc, free_host=driver.cuMemFreeHost,
        allocate=driver.cuMemAllocAsync, free=driver.cuMemFreeAsync,
    )  # fmt: skip


def cuda_core():
    import numpy as np

    try:
        import cuda.core as core

        core.LegacyPinnedMemoryResource  # noqa: B018
    except (ImportError, AttributeError):
        import cuda.core.experimental as core

    unit = core.Device(0)
    unit.set_current()
    stream = unit.create_stream()
    memory = unit.memory_resource
    device, other = (memory.allocate(NBYTES, stream=stream) for _ in range(2))
    pinned = core.LegacyPinnedMemoryResource()
    host = pinned.allocate(NBYTES)
    kernel = core.ObjectCode.from_ptx(PTX.encode()).get_kernel(KERNEL)
    names, locked = {}, ["pinned.allocate(1048576).close()"]
    with suppress(Exception):  # the driver may have no pools of page-locked memory
        names["pool"] = core.PinnedMemoryResource()
        locked.append("pool.allocate(1048576, stream=stream).close()")
    rows = {
        "h2d": "device.copy_from(host, stream=stream)",
        "d2h": "device.copy_to(host, stream=stream)",
        "d2d": "other.copy_from(device, stream=stream)",
        "record": "stream.record(event)",
        "wait": "stream.wait(event)",
        "synchronize": "stream.sync()",
        "h2d and wait": "device.copy_from(host, stream=stream); stream.sync()",
        "launch": [
            "launch(stream, config, kernel, count, factor, device, other)",
            "launch(stream, config, kernel, count, factor, first, second)",
        ],
        "locked memory": locked,
        "device memory": "memory.allocate(1048576, stream=stream).close()",
        "device memory on a stream": "memory.allocate(1048576, stream=stream).close()",
    }
    if hasattr(device, "fill"):
        rows["fill"] = "device.fill(0, stream=stream)"
    return Peer(
        stream.sync, rows, stream=stream, event=stream.record(), host=host, device=device,
        other=other, kernel=kernel, launch=core.launch, memory=memory, pinned=pinned,
        config=core.LaunchConfig(grid=1, block=32), count=np.int32(32), factor=np.float32(2),
        first=int(device.handle), second=int(other.handle), **names,
    )  # fmt: skip


def cupy():
    import cupy
    import numpy as np

    stream = cupy.cuda.Stream(non_blocking=True)
    event = cupy.cuda.Event(disable_timing=True)
    device, other = cupy.cuda.alloc(NBYTES), cupy.cuda.alloc(NBYTES)
    host = cupy.cuda.alloc_pinned_memory(NBYTES)
    event.record(stream)
    module = cupy.cuda.function.Module()
    module.load(PTX.encode() + b"\0")
    arguments = (np.int32(32), np.float32(2), device.ptr, other.ptr)
    # Methods, and the functions of the CUDA runtime that CuPy documents beside them.
    h2d = ["device.copy_from_host_async(address, 4096, stream)", "copy(first, address, 4096, 1, s)"]
    synchronize = ["stream.synchronize()", "wait_for(s)"]
    rows = {
        "h2d": h2d,
        "d2h": [
            "device.copy_to_host_async(address, 4096, stream)",
            "copy(address, first, 4096, 2, s)",
        ],
        "d2d": [
            "other.copy_from_device_async(device, 4096, stream)",
            "copy(second, first, 4096, 3, s)",
        ],
        "fill": ["device.memset_async(0, 4096, stream)", "fill(first, 0, 4096, s)"],
        "box": [
            "copy_box(target, 1024, source, 1024, 256, 16, 3, s)",
            "right[...] = left",
        ],
        "record": ["event.record(stream)", "record(e, s)"],
        "wait": ["stream.wait_event(event)", "wait(s, e)"],
        "synchronize": synchronize,
        "h2d and wait": [f"{copy}; {wait}" for copy, wait in zip(h2d, synchronize, strict=True)],
        "launch": "kernel((1,), (32,), arguments, stream=stream)",
        "call": "stream.launch_host_func(nothing, None)",
        "call and wait": "stream.launch_host_func(nothing, None); stream.synchronize()",
        "locked memory": "pinned(1048576)",
        "device memory": "memory(1048576)",
    }
    runtime = cupy.cuda.runtime
    stream.use()
    image = cupy.zeros((1024, PITCH), np.uint8)
    left, right = image[:16, :256], image[:16, 512:768]
    return Peer(
        stream.synchronize, rows, stream=stream, event=event, device=device, other=other,
        host=host, address=host.ptr, kernel=module.get_function(KERNEL), arguments=arguments,
        pinned=cupy.cuda.alloc_pinned_memory, memory=cupy.cuda.alloc, module=module,
        first=device.ptr, second=other.ptr, s=stream.ptr, e=event.ptr, copy=runtime.memcpyAsync,
        fill=runtime.memsetAsync, record=runtime.eventRecord, wait=runtime.streamWaitEvent,
        wait_for=runtime.streamSynchronize, copy_box=runtime.memcpy2DAsync, left=left, right=right,
        source=left.data.ptr, target=right.data.ptr, nothing=lambda given: None,
    )  # fmt: skip


def pytorch():
    import torch

    if not torch.cuda.is_available():
        raise ImportError("this PyTorch has no CUDA")
    torch.set_grad_enabled(False)
    torch.cuda.set_device(0)
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    device, other = (torch.zeros(NBYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    host = torch.zeros(NBYTES, dtype=torch.uint8).pin_memory()
    image = torch.zeros((1024, PITCH), dtype=torch.uint8, device="cuda")
    rows = {
        "h2d": "device.copy_(host, non_blocking=True)",
        "d2h": "host.copy_(device, non_blocking=True)",
        "d2d": "other.copy_(device, non_blocking=True)",
        "fill": "device.zero_()",
        "box": "right.copy_(left)",
        "record": "event.record(stream)",
        "wait": "stream.wait_event(event)",
        "synchronize": "stream.synchronize()",
        "h2d and wait": "device.copy_(host, non_blocking=True); stream.synchronize()",
        "locked memory": "empty(1048576, dtype=u1, pin_memory=True)",
        "device memory": "empty(1048576, dtype=u1, device='cuda')",
    }
    return Peer(
        stream.synchronize, rows, stream=stream, event=stream.record_event(), device=device,
        other=other, host=host, empty=torch.empty, u1=torch.uint8, left=image[:16, :256],
        right=image[:16, 512:768],
    )  # fmt: skip


def pycuda():
    import numpy as np
    import pycuda.autoprimaryctx  # noqa: F401 - releases the context at exit
    import pycuda.driver as cuda
    from pycuda.tools import DeviceMemoryPool, PageLockedMemoryPool

    stream, event = cuda.Stream(), cuda.Event(cuda.event_flags.DISABLE_TIMING)
    device, other = cuda.mem_alloc(NBYTES), cuda.mem_alloc(NBYTES)
    event.record(stream)
    module = cuda.module_from_buffer(PTX.encode() + b"\0")
    kernel = module.get_function(KERNEL)
    kernel.prepare("ifPP")
    image, box = cuda.mem_alloc(LARGE), cuda.Memcpy2D()
    box.set_src_device(int(image))
    box.set_dst_device(int(image) + PITCH // 2)
    box.src_pitch = box.dst_pitch = PITCH
    box.width_in_bytes, box.height = 256, 16
    rows = {
        "h2d": "h2d(device, host, stream)",
        "d2h": "d2h(host, device, stream)",
        "d2d": "d2d(other, device, 4096, stream)",
        "fill": "fill(device, 0, 4096, stream)",
        "box": "box(stream)",
        "record": "event.record(stream)",
        "wait": "stream.wait_for_event(event)",
        "synchronize": "stream.synchronize()",
        "h2d and wait": "h2d(device, host, stream); stream.synchronize()",
        "launch": [
            "kernel.prepared_async_call((1, 1), (32, 1, 1), stream, 32, 2.0, device, other)",
            "plain(count, factor, device, other, block=(32, 1, 1), stream=stream)",
        ],
        "locked memory": "pinned((1048576,), u1)",
        "device memory": "memory(1048576)",
    }
    return Peer(
        stream.synchronize, rows, stream=stream, event=event, device=device, other=other,
        host=cuda.pagelocked_zeros(NBYTES, np.uint8), kernel=kernel, box=box, image=image,
        h2d=cuda.memcpy_htod_async, d2h=cuda.memcpy_dtoh_async, d2d=cuda.memcpy_dtod_async,
        fill=cuda.memset_d8_async, plain=module.get_function(KERNEL), count=np.int32(32),
        factor=np.float32(2), pinned=PageLockedMemoryPool().allocate,
        memory=DeviceMemoryPool().allocate, u1=np.uint8,
    )  # fmt: skip


def numba_cuda():
    import warnings

    import numpy as np
    from numba import cuda

    warnings.simplefilter("ignore")  # about small grids
    stream, event = cuda.stream(), cuda.event(timing=False)
    host = cuda.pinned_array(NBYTES, np.uint8)
    device, other = cuda.device_array(NBYTES, np.uint8), cuda.device_array(NBYTES, np.uint8)
    event.record(stream)
    rows = {
        "h2d": "device.copy_to_device(host, stream)",
        "d2h": "device.copy_to_host(host, stream)",
        "d2d": "other.copy_to_device(device, stream)",
        "record": "event.record(stream)",
        "wait": "event.wait(stream)",
        "synchronize": "stream.synchronize()",
        "h2d and wait": "device.copy_to_device(host, stream); stream.synchronize()",
        "locked memory": "pinned(1048576, u1)",
        "device memory": "memory(1048576, u1)",
    }
    names = {}
    try:
        nothing = cuda.jit("void(int32, float32, uint8[::1], uint8[::1])")(lambda n, a, x, y: None)
    except Exception as error:  # needs machine code, which the software driver cannot run
        print(f"numba-cuda without its launch: {type(error).__name__}: {error}", file=sys.stderr)
    else:
        rows["launch"] = "kernel(32, 2.0, device, other)"
        names["kernel"] = nothing[1, 32, stream]
    return Peer(
        stream.synchronize, rows, stream=stream, event=event, device=device, other=other,
        host=host, pinned=cuda.pinned_array, memory=cuda.device_array, u1=np.uint8, **names,
    )  # fmt: skip


PEERS = {
    "cudadrv": cudadrv,
    "cuda.core": cuda_core,
    "CuPy": cupy,
    "cuda.bindings": cuda_bindings,
    "PyCUDA": pycuda,
    "PyTorch": pytorch,
    "numba-cuda": numba_cuda,
}
