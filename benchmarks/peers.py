"""The same calls through cudadrv and other bindings: for each, names and a statement a row.

Everybody gets the cheapest spelling that its documentation shows, with all that can be prepared
done before. Statements run with their names as local variables.
"""

NBYTES = 4096
LARGE = 1 << 20
KERNEL = "nothing"
# Does nothing with four arguments, as C's void nothing(int, float, float *, float *).
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
    """Rows as statements over names, and how to wait for all of it."""

    def __init__(self, settle, rows, **names):
        self.settle, self.rows, self.names = settle, rows, names


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
        "record": "stream.record(event)",
        "wait": "stream.wait(event)",
        "synchronize": "stream.synchronize()",
        "h2d and wait": "device.copy_from_async(host, stream); stream.synchronize()",
        "locked memory": "locked(1048576)",
        "device memory": "memory(1048576, stream=stream)",
    }
    names = {}
    if hasattr(cu, "Module"):
        names["kernel"] = kernel = cu.Module(PTX)[KERNEL]
        names["prepared"] = kernel.prepare(1, 32, 32, 2.0, device, other)
        rows["launch"] = "kernel.launch(1, 32, 32, 2.0, device, other, stream=stream)"
        rows["launch prepared"] = "prepared.launch(stream)"
    return Peer(
        stream.synchronize, rows, stream=stream, event=event, host=host, device=device,
        other=other, locked=cu.LockedBuffer, memory=cu.DeviceBuffer, **names,
    )  # fmt: skip


def cuda_bindings():
    import ctypes

    from cuda.bindings import driver

    import cudadrv as cu

    with cu.Device(0):
        host = cu.LockedBuffer.zeros(NBYTES)
        device, other = cu.DeviceBuffer.zeros(NBYTES), cu.DeviceBuffer.zeros(NBYTES)
        _, stream = driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        _, event = driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        _, module = driver.cuModuleLoadData(PTX.encode() + b"\0")
    driver.cuEventRecord(event, stream)
    rows = {
        "h2d": "driver.cuMemcpyHtoDAsync(target, source, 4096, stream)",
        "d2h": "driver.cuMemcpyDtoHAsync(source, target, 4096, stream)",
        "d2d": "driver.cuMemcpyDtoDAsync(second, target, 4096, stream)",
        "fill": "driver.cuMemsetD8Async(target, 0, 4096, stream)",
        "record": "driver.cuEventRecord(event, stream)",
        "wait": "driver.cuStreamWaitEvent(stream, event, 0)",
        "synchronize": "driver.cuStreamSynchronize(stream)",
        "h2d and wait": "driver.cuMemcpyHtoDAsync(target, source, 4096, stream);"
        " driver.cuStreamSynchronize(stream)",
        "locked memory": "driver.cuMemFreeHost(driver.cuMemHostAlloc(1048576, 1)[1])",
        "device memory": "driver.cuMemFreeAsync("
        "driver.cuMemAllocAsync(1048576, stream)[1], stream)",
    }
    names = {}
    if module:
        _, names["kernel"] = driver.cuModuleGetFunction(module, KERNEL.encode())
        values = (32, 2.0, int(device.address), int(other.address))
        types = (ctypes.c_int, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p)
        names["arguments"] = (values, types)
        rows["launch"] = "driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, arguments, 0)"
    return Peer(
        lambda: driver.cuStreamSynchronize(stream), rows, driver=driver, stream=stream,
        event=event, target=driver.CUdeviceptr(device.address), source=host.address,
        second=driver.CUdeviceptr(other.address), keep=(host, device, other), **names,
    )  # fmt: skip


def cuda_core():
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
    import numpy as np

    rows = {
        "h2d": "device.copy_from(host, stream=stream)",
        "d2h": "device.copy_to(host, stream=stream)",
        "d2d": "other.copy_from(device, stream=stream)",
        "record": "stream.record(event)",
        "wait": "stream.wait(event)",
        "synchronize": "stream.sync()",
        "h2d and wait": "device.copy_from(host, stream=stream); stream.sync()",
        "launch": "launch(stream, config, kernel, count, factor, device, other)",
        "locked memory": "pinned.allocate(1048576).close()",
        "device memory": "memory.allocate(1048576, stream=stream).close()",
    }
    if hasattr(device, "fill"):
        rows["fill"] = "device.fill(0, stream=stream)"
    return Peer(
        stream.sync, rows, stream=stream, event=stream.record(), host=host, device=device,
        other=other, kernel=kernel, launch=core.launch, memory=memory, pinned=pinned,
        config=core.LaunchConfig(grid=1, block=32), count=np.int32(32), factor=np.float32(2),
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
    rows = {
        "h2d": "device.copy_from_host_async(address, 4096, stream)",
        "d2h": "device.copy_to_host_async(address, 4096, stream)",
        "d2d": "other.copy_from_device_async(device, 4096, stream)",
        "fill": "device.memset_async(0, 4096, stream)",
        "record": "event.record(stream)",
        "wait": "stream.wait_event(event)",
        "synchronize": "stream.synchronize()",
        "h2d and wait": "device.copy_from_host_async(address, 4096, stream); stream.synchronize()",
        "launch": "kernel((1,), (32,), arguments, stream=stream)",
        "locked memory": "pinned(1048576)",
        "device memory": "memory(1048576)",
    }
    return Peer(
        stream.synchronize, rows, stream=stream, event=event, device=device, other=other,
        host=host, address=host.ptr, kernel=module.get_function(KERNEL), arguments=arguments,
        pinned=cupy.cuda.alloc_pinned_memory, memory=cupy.cuda.alloc, module=module,
    )  # fmt: skip


def pytorch():
    import torch

    if not torch.cuda.is_available():
        raise ImportError("this PyTorch has no CUDA")
    torch.cuda.set_device(0)
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    device, other = (torch.zeros(NBYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    host = torch.zeros(NBYTES, dtype=torch.uint8).pin_memory()
    rows = {
        "h2d": "device.copy_(host, non_blocking=True)",
        "d2h": "host.copy_(device, non_blocking=True)",
        "d2d": "other.copy_(device, non_blocking=True)",
        "fill": "device.zero_()",
        "record": "event.record(stream)",
        "wait": "stream.wait_event(event)",
        "synchronize": "stream.synchronize()",
        "h2d and wait": "device.copy_(host, non_blocking=True); stream.synchronize()",
        "locked memory": "empty(1048576, dtype=u1, pin_memory=True)",
        "device memory": "empty(1048576, dtype=u1, device='cuda')",
    }
    return Peer(
        stream.synchronize, rows, stream=stream, event=stream.record_event(), device=device,
        other=other, host=host, empty=torch.empty, u1=torch.uint8,
    )  # fmt: skip


def pycuda():
    import numpy as np
    import pycuda.driver as cuda

    cuda.init()
    context = cuda.Device(0).retain_primary_context()
    context.push()
    stream, event = cuda.Stream(), cuda.Event(cuda.event_flags.DISABLE_TIMING)
    device, other = cuda.mem_alloc(NBYTES), cuda.mem_alloc(NBYTES)
    event.record(stream)
    kernel = cuda.module_from_buffer(PTX.encode() + b"\0").get_function(KERNEL)
    kernel.prepare("ifPP")
    rows = {
        "h2d": "h2d(device, host, stream)",
        "d2h": "d2h(host, device, stream)",
        "d2d": "d2d(other, device, 4096, stream)",
        "fill": "fill(device, 0, 4096, stream)",
        "record": "event.record(stream)",
        "wait": "stream.wait_for_event(event)",
        "synchronize": "stream.synchronize()",
        "h2d and wait": "h2d(device, host, stream); stream.synchronize()",
        "launch": "kernel.prepared_async_call((1, 1), (32, 1, 1), stream, 32, 2.0, device, other)",
    }
    return Peer(
        stream.synchronize, rows, stream=stream, event=event, device=device, other=other,
        host=cuda.pagelocked_zeros(NBYTES, np.uint8), kernel=kernel, context=context,
        h2d=cuda.memcpy_htod_async, d2h=cuda.memcpy_dtoh_async, d2d=cuda.memcpy_dtod_async,
        fill=cuda.memset_d8_async,
    )  # fmt: skip


def numba_cuda():
    import warnings

    import numpy as np
    from numba import cuda

    warnings.simplefilter("ignore")  # of small grids
    stream, event = cuda.stream(), cuda.event(timing=False)
    host = cuda.pinned_array(NBYTES, np.uint8)
    device, other = cuda.device_array(NBYTES, np.uint8), cuda.device_array(NBYTES, np.uint8)
    event.record(stream)
    nothing = cuda.jit("void(int32, float32, uint8[::1], uint8[::1])")(lambda n, a, x, y: None)
    rows = {
        "h2d": "device.copy_to_device(host, stream)",
        "d2h": "device.copy_to_host(host, stream)",
        "d2d": "other.copy_to_device(device, stream)",
        "record": "event.record(stream)",
        "wait": "event.wait(stream)",
        "synchronize": "stream.synchronize()",
        "h2d and wait": "device.copy_to_device(host, stream); stream.synchronize()",
        "launch": "kernel(32, 2.0, device, other)",
    }
    return Peer(
        stream.synchronize, rows, stream=stream, event=event, device=device, other=other,
        host=host, kernel=nothing[1, 32, stream],
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
