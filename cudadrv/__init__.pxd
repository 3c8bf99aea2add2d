"""The C level of cudadrv: `cimport cudadrv as cu`. See docs/cython.md.

The declarations of this file are as stable as the Python level. Everything else that can be
cimported from cudadrv is internal, and may change with any version.
"""

from cudadrv._custom cimport (
    READ, SHARED, WRITE, Call, borrow, borrow_kernel, borrow_prepared, cuLaunchKernel,
    cuLaunchKernelEx, cuMemcpyAsync, cuMemcpyDtoDAsync, cuMemcpyDtoHAsync, cuMemcpyHtoDAsync,
    cuMemsetD16Async, cuMemsetD32Async, cuMemsetD8Async, issue, launch_prepared,
)
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN, CUDA_SUCCESS,
    CUdeviceptr, CUfunction, CUlaunchConfig, CUresult, CUstream,
)


# These classes are opaque, so that their layout is not compiled into other projects. C code can
# only check the type of an object; its attributes are Python attributes.
cdef extern from *:
    ctypedef class cudadrv.Buffer [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.DeviceBuffer(Buffer) [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.HostBuffer(Buffer) [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.LockedBuffer(HostBuffer) [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.UnifiedBuffer(HostBuffer) [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.Context [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.Device [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.Event [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.Kernel [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.Module [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.Prepared [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.Stream [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv.Token [object PyObject, check_size ignore]:
        pass
    ctypedef class cudadrv._custom.Operation [object PyObject, check_size ignore]:
        pass
