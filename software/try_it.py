"""A client of the driver API, to try a wheel that was just installed.

cudadrv-software run -- python try_it.py
"""

import ctypes

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 target)
{
    .reg .u64 %target;
    .reg .u32 %value;
    ld.param.u64 %target, [target];
    mov.u32 %value, 42;
    st.global.u32 [%target], %value;
    ret;
}
"""

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    assert status == 0, f"{name} returned {status}"


context, module, kernel = (ctypes.c_void_p() for _ in range(3))
memory, result, count = ctypes.c_uint64(), ctypes.c_uint32(), ctypes.c_uint()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"store")
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4))
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
call("cuLaunchKernel", kernel, *[1] * 6, 0, None, arguments, None)
call("cuMemcpyDtoH_v2", ctypes.byref(result), memory, ctypes.c_size_t(4))
assert result.value == 42, result.value

nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
assert count.value == 1, count.value
print("it works")
