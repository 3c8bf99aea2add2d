"""A client of the driver API, by ctypes as in other libraries. It does not import cudadrv."""

import ctypes

cuda = ctypes.CDLL("libcuda.so.1")

OUT_OF_BOUNDS = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry writes_nowhere()
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    mov.u64 %rd1, 64;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


# Each thread writes its word and reads the word of the next thread.
EXCHANGE = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry exchange()
{
    .reg .b32 %r<4>;
    .shared .align 4 .b8 tile[260];
    mov.u32 %r1, tile;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r1, %r2, 4, %r1;
    st.shared.u32 [%r1], %r2;
    ld.shared.u32 %r3, [%r1+4];
    ret;
}
"""


def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    assert status == 0, f"{name}: {status}"


def initialise():
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


def allocate(size=1024):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address


def stream():
    handle = ctypes.c_void_p()
    # A non-blocking stream: not ordered with the legacy stream.
    call("cuStreamCreate", ctypes.byref(handle), 1)
    return handle


def race():
    memory = allocate()
    for handle in (stream(), stream()):
        call("cuMemsetD8Async", memory, 1, ctypes.c_size_t(1024), handle)


def launch(text, name, threads):
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), text)
    call("cuModuleGetFunction", ctypes.byref(kernel), module, name)
    call("cuLaunchKernel", kernel, 1, 1, 1, threads, 1, 1, 0, None, None, None)


def kernel_fault():
    launch(OUT_OF_BOUNDS, b"writes_nowhere", 1)
    assert cuda.cuCtxSynchronize() == 700


def hazard():
    launch(EXCHANGE, b"exchange", 64)
    call("cuCtxSynchronize")


def unsupported(times=1):
    for _ in range(times):
        assert cuda.cuCheckpointProcessLock(0, None) == 801
