"""cuda.bindings.driver on the software driver."""

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver, nvrtc

N = 5000  # bytes


def check(answer):
    """Check the status of a call. Returns its results: None, one, or a tuple."""
    status, *results = answer
    assert status in (driver.CUresult.CUDA_SUCCESS, nvrtc.nvrtcResult.NVRTC_SUCCESS)
    return results[0] if len(results) == 1 else tuple(results) or None


@pytest.fixture(autouse=True)
def device(schedule):
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
    yield device
    check(driver.cuCtxSetCurrent(driver.CUcontext(0)))
    check(driver.cuDevicePrimaryCtxRelease(device))


@pytest.fixture
def stream():
    flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    stream = check(driver.cuStreamCreate(flags))
    yield stream
    check(driver.cuStreamDestroy(stream))


@pytest.fixture
def other():
    stream = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    yield stream
    check(driver.cuStreamDestroy(stream))


@pytest.fixture
def memory():
    address = check(driver.cuMemAlloc(N))
    yield address
    check(driver.cuMemFree(address))


def locked(address):
    """Page-locked memory, as an array of N bytes."""
    return np.frombuffer((ctypes.c_uint8 * N).from_address(int(address)), "u1")


@pytest.fixture
def source():
    address = check(driver.cuMemHostAlloc(N, 0))
    array = locked(address)
    array[:] = np.arange(N) % 251
    yield array
    check(driver.cuMemFreeHost(address))


@pytest.fixture
def target():
    address = check(driver.cuMemHostAlloc(N, 0))
    array = locked(address)
    array[:] = 0
    yield array
    check(driver.cuMemFreeHost(address))


def wait(stream):
    check(driver.cuStreamSynchronize(stream))


def test_devices(device):
    assert check(driver.cuDeviceGetCount()) == 2
    assert check(driver.cuDriverGetVersion()) >= 13000
    assert b"software" in check(driver.cuDeviceGetName(100, device))
    warp = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_WARP_SIZE
    assert check(driver.cuDeviceGetAttribute(warp, device)) == 32
    assert check(driver.cuDeviceTotalMem(device)) == 64 << 20
    uuids = [check(driver.cuDeviceGetUuid(check(driver.cuDeviceGet(n)))).bytes for n in (0, 1)]
    assert uuids[0] != uuids[1]


def test_copy_pageable(memory):
    data = np.arange(N, dtype="u1")
    back = np.zeros_like(data)
    check(driver.cuMemcpyHtoD(memory, data.ctypes.data, N))
    check(driver.cuMemcpyDtoH(back.ctypes.data, memory, N))
    assert np.array_equal(back, data)


def test_copy_in_stream(memory, stream, source, target):
    second = check(driver.cuMemAlloc(N))
    check(driver.cuMemcpyHtoDAsync(memory, source.ctypes.data, N, stream))
    check(driver.cuMemcpyDtoDAsync(second, memory, N, stream))
    check(driver.cuMemcpyDtoHAsync(target.ctypes.data, second, N, stream))
    wait(stream)
    assert np.array_equal(target, source)
    check(driver.cuMemFree(second))


def test_copy_rectangle(memory, source, target):
    """A copy of 20 rows of 30 bytes, with a pitch of 100 bytes on the host and 64 on the device."""

    def copy(to_device, host):
        block = driver.CUDA_MEMCPY2D()
        block.WidthInBytes, block.Height = 30, 20
        ends = ("dst", "src") if to_device else ("src", "dst")
        for end, kind, pitch in zip(ends, ("DEVICE", "HOST"), (64, 100), strict=True):
            memory_type = getattr(driver.CUmemorytype, f"CU_MEMORYTYPE_{kind}")
            setattr(block, f"{end}MemoryType", memory_type)
            setattr(block, f"{end}Pitch", pitch)
        setattr(block, f"{ends[0]}Device", memory)
        setattr(block, f"{ends[1]}Host", host.ctypes.data)
        check(driver.cuMemcpy2D(block))

    copy(True, source)
    copy(False, target)
    rows, copied = (array[:2000].reshape(20, 100) for array in (source, target))
    assert np.array_equal(copied[:, :30], rows[:, :30])
    assert not copied[:, 30:].any()


@pytest.mark.parametrize("width", [8, 16, 32])
def test_fill(memory, stream, target, width):
    value, count = 0x1F2E3D4C % 2**width, N * 8 // width
    check(getattr(driver, f"cuMemsetD{width}Async")(memory, value, count, stream))
    check(driver.cuMemcpyDtoHAsync(target.ctypes.data, memory, N, stream))
    wait(stream)
    assert (target.view(f"u{width // 8}") == value).all()


def test_event_orders_streams(memory, stream, other, source, target):
    event = check(driver.cuEventCreate(0))
    check(driver.cuMemcpyHtoDAsync(memory, source.ctypes.data, N, stream))
    check(driver.cuEventRecord(event, stream))
    check(driver.cuStreamWaitEvent(other, event, 0))
    check(driver.cuMemcpyDtoHAsync(target.ctypes.data, memory, N, other))
    wait(other)
    assert np.array_equal(target, source)
    check(driver.cuEventDestroy(event))


def test_missing_wait_shows(schedule, memory, stream, other, source, target):
    if schedule != "lazy":
        pytest.skip("only the lazy schedule promises to show it")
    check(driver.cuMemcpyHtoDAsync(memory, source.ctypes.data, N, stream))
    check(driver.cuMemcpyDtoHAsync(target.ctypes.data, memory, N, other))
    wait(other)
    assert not np.array_equal(target, source)
    wait(stream)


def test_events(memory, stream, source):
    start, end = (check(driver.cuEventCreate(0)) for _ in range(2))
    check(driver.cuEventRecord(start, stream))
    check(driver.cuMemcpyHtoDAsync(memory, source.ctypes.data, N, stream))
    check(driver.cuEventRecord(end, stream))
    for _ in range(100):
        if driver.cuEventQuery(end)[0] == driver.CUresult.CUDA_SUCCESS:
            break
    else:
        pytest.fail("polling does not end")
    check(driver.cuEventSynchronize(end))
    assert check(driver.cuEventElapsedTime(start, end)) >= 0
    untimed = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    check(driver.cuEventRecord(untimed, stream))
    status, _ = driver.cuEventElapsedTime(start, untimed)
    assert status == driver.CUresult.CUDA_ERROR_INVALID_HANDLE
    for event in (start, end, untimed):
        check(driver.cuEventDestroy(event))


def test_host_function(stream):
    called = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    address = ctypes.cast(function, ctypes.c_void_p).value
    check(driver.cuLaunchHostFunc(stream, driver.CUhostFn(address), 7))
    wait(stream)
    assert called == [7]


def test_values_in_memory(memory, stream, other, source, target):
    """One stream waits for a value in memory that another stream writes."""
    check(driver.cuMemsetD32(memory, 0, 1))
    # The fill may return before it is complete, and orders no non-blocking stream.
    check(driver.cuCtxSynchronize())
    check(driver.cuStreamWaitValue32(stream, memory, 5, 0))
    check(driver.cuMemcpyDtoHAsync(target.ctypes.data, memory, 4, stream))
    check(driver.cuStreamWriteValue32(other, memory, 5, 0))
    wait(other)
    wait(stream)
    assert target[0] == 5


def test_stream_ordered_memory(stream, source, target):
    address = check(driver.cuMemAllocAsync(N, stream))
    check(driver.cuMemcpyHtoDAsync(address, source.ctypes.data, N, stream))
    check(driver.cuMemcpyDtoHAsync(target.ctypes.data, address, N, stream))
    check(driver.cuMemFreeAsync(address, stream))
    wait(stream)
    assert np.array_equal(target, source)


def test_pool(device, stream):
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = int(device)
    pool = check(driver.cuMemPoolCreate(properties))
    used = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    assert int(check(driver.cuMemPoolGetAttribute(pool, used))) == 0
    address = check(driver.cuMemAllocFromPoolAsync(N, pool, stream))
    wait(stream)
    assert int(check(driver.cuMemPoolGetAttribute(pool, used))) >= N
    check(driver.cuMemFreeAsync(address, stream))
    wait(stream)
    assert int(check(driver.cuMemPoolGetAttribute(pool, used))) == 0
    check(driver.cuMemPoolTrimTo(pool, 0))
    check(driver.cuMemPoolDestroy(pool))


def test_managed_memory(stream):
    attach = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
    address = check(driver.cuMemAllocManaged(N, attach.value))
    check(driver.cuMemsetD8Async(address, 9, N, stream))
    wait(stream)
    array = locked(address)
    assert (array == 9).all()
    array[:] = 3
    back = np.zeros(N, "u1")
    check(driver.cuMemcpyDtoH(back.ctypes.data, address, N))
    assert (back == 3).all()
    check(driver.cuMemFree(address))


def test_registered_memory(memory, stream):
    array = np.arange(N, dtype="u1")
    check(driver.cuMemHostRegister(array.ctypes.data, N, 0))
    check(driver.cuMemcpyHtoDAsync(memory, array.ctypes.data, N, stream))
    wait(stream)
    check(driver.cuMemHostUnregister(array.ctypes.data))
    back = np.zeros(N, "u1")
    check(driver.cuMemcpyDtoH(back.ctypes.data, memory, N))
    assert np.array_equal(back, array)


def test_pointer_attributes(device, memory, source):
    attribute = driver.CUpointer_attribute
    kind = attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    device_kind = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    assert check(driver.cuPointerGetAttribute(kind, memory)) == device_kind
    locked_kind = check(driver.cuPointerGetAttribute(kind, source.ctypes.data))
    assert locked_kind == driver.CUmemorytype.CU_MEMORYTYPE_HOST
    ordinal = attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert check(driver.cuPointerGetAttribute(ordinal, memory)) == int(device)
    start, size = check(driver.cuMemGetAddressRange(int(memory) + 100))
    assert (int(start), size) == (int(memory), N)


def test_contexts(device):
    primary = check(driver.cuCtxGetCurrent())
    context = check(driver.cuCtxCreate(None, 0, device))
    assert int(check(driver.cuCtxGetCurrent())) == int(context)
    assert int(check(driver.cuCtxPopCurrent())) == int(context)
    assert int(check(driver.cuCtxGetCurrent())) == int(primary)
    check(driver.cuCtxPushCurrent(context))
    check(driver.cuCtxDestroy(context))
    assert int(check(driver.cuCtxGetCurrent())) == int(primary)


def begin_capture(stream):
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    check(driver.cuStreamBeginCapture(stream, mode))


def test_capture(stream, memory):
    begin_capture(stream)
    check(driver.cuMemsetD8Async(memory, 9, N, stream))
    graph = check(driver.cuStreamEndCapture(stream))
    check(driver.cuGraphDestroy(graph))
    wait(stream)


def test_invalid_capture(stream):
    begin_capture(stream)
    (status,) = driver.cuStreamSynchronize(stream)
    assert status == driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    status, _ = driver.cuStreamEndCapture(stream)
    assert status == driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    wait(stream)


def test_errors(memory):
    errors = driver.CUresult
    assert driver.cuMemAlloc(0)[0] == errors.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemAlloc(1 << 30)[0] == errors.CUDA_ERROR_OUT_OF_MEMORY
    assert driver.cuDeviceGet(2)[0] == errors.CUDA_ERROR_INVALID_DEVICE
    assert driver.cuMemsetD8(int(memory) + 1, 0, N)[0] == errors.CUDA_ERROR_INVALID_VALUE
    name = check(driver.cuGetErrorName(errors.CUDA_ERROR_OUT_OF_MEMORY))
    assert name == b"CUDA_ERROR_OUT_OF_MEMORY"
    assert check(driver.cuGetErrorString(errors.CUDA_ERROR_OUT_OF_MEMORY)) == b"out of memory"
    free, total = check(driver.cuMemGetInfo())
    assert 0 < free < total


def test_kernel(scale, stream, memory, source, target):
    module = check(driver.cuModuleLoadData(scale))
    kernel = check(driver.cuModuleGetFunction(module, b"scale"))
    check(driver.cuMemcpyHtoDAsync(memory, source.ctypes.data, N, stream))
    arguments = (int(memory), N // 4, 3), (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
    check(driver.cuLaunchKernel(kernel, N // 400 + 1, 1, 1, 100, 1, 1, 0, stream, arguments, 0))
    check(driver.cuMemcpyDtoHAsync(target.ctypes.data, memory, N, stream))
    wait(stream)
    assert (target.view("u4") == source.view("u4") * 3).all()
    launches, size = check(driver.cuModuleGetGlobal(module, b"launches"))
    count = np.zeros(1, "u4")
    check(driver.cuMemcpyDtoH(count, launches, size))
    assert count[0] == 1
    check(driver.cuModuleUnload(module))


def test_a_cubin_of_nvrtc(memory):
    """The NVRTC of `cudadrv run` returns PTX in place of a cubin, and finds built-in functions."""
    source = b'extern "C" __global__ void fill(float *at) { at[threadIdx.x] = sinf(threadIdx.x); }'
    program = check(nvrtc.nvrtcCreateProgram(source, b"fill.cu", 0, [], []))
    check(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"]))
    cubin = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
    check(nvrtc.nvrtcGetCUBIN(program, cubin))
    ptx = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, ptx))
    check(nvrtc.nvrtcDestroyProgram(program))
    assert cubin == b"/* cudadrv: PTX in place of a cubin */ " + ptx
    module = check(driver.cuModuleLoadData(cubin))
    kernel = check(driver.cuModuleGetFunction(module, b"fill"))
    arguments = (int(memory),), (ctypes.c_void_p,)
    check(driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, arguments, 0))
    filled = np.zeros(32, "f4")
    check(driver.cuMemcpyDtoH(filled.ctypes.data, memory, filled.nbytes))
    assert np.allclose(filled, np.sin(np.arange(32)))
    check(driver.cuModuleUnload(module))


def test_wrong_code(scale):
    errors = driver.CUresult
    assert driver.cuModuleLoadData(b"no PTX")[0] == errors.CUDA_ERROR_INVALID_IMAGE
    wrong = scale.replace(b"mul.lo.u32", b"frobnicate.u32")
    assert driver.cuModuleLoadData(wrong)[0] == errors.CUDA_ERROR_INVALID_PTX
