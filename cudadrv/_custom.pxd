"""Custom operations: what other projects get by `cimport cudadrv`.

These declarations use the driver's types and none of cudadrv's, so that code compiled against one
version also works with later ones. Objects are checked when they are passed.
"""

from cudadrv._driver cimport CUdeviceptr, CUfunction, CUlaunchConfig, CUresult, CUstream


cdef enum:
    READ = 1
    WRITE = 2
    SHARED = 3


# The type of the function that makes the driver calls of an operation on the stream. The function
# runs without the GIL, in the stream's context. It must not take the GIL, and of cudadrv it may use
# only the functions below. If it returns an error status, `issue` raises a CudaError. The buffers
# then stay borrowed, as if all work had been queued: *queued is true from the beginning. If nothing
# was queued, the function sets *queued to False before it returns the error.
ctypedef CUresult (*Call)(void *arguments, CUstream stream, bint *queued) noexcept nogil


cdef CUdeviceptr borrow(object operation, object buffer, int mode) except? 0
cdef CUfunction borrow_kernel(object operation, object kernel) except NULL
cdef void *borrow_prepared(object operation, object prepared) except NULL
cdef object issue(object operation, object stream, Call call, void *arguments)


# Driver functions for a Call.
cdef CUresult launch_prepared(void *prepared, CUstream stream) noexcept nogil
cdef CUresult cuMemcpyAsync(
    CUdeviceptr target, CUdeviceptr source, size_t nbytes, CUstream stream) noexcept nogil
cdef CUresult cuMemcpyHtoDAsync(
    CUdeviceptr target, const void *source, size_t nbytes, CUstream stream) noexcept nogil
cdef CUresult cuMemcpyDtoHAsync(
    void *target, CUdeviceptr source, size_t nbytes, CUstream stream) noexcept nogil
cdef CUresult cuMemcpyDtoDAsync(
    CUdeviceptr target, CUdeviceptr source, size_t nbytes, CUstream stream) noexcept nogil
cdef CUresult cuMemsetD8Async(
    CUdeviceptr target, unsigned char value, size_t count, CUstream stream) noexcept nogil
cdef CUresult cuMemsetD16Async(
    CUdeviceptr target, unsigned short value, size_t count, CUstream stream) noexcept nogil
cdef CUresult cuMemsetD32Async(
    CUdeviceptr target, unsigned int value, size_t count, CUstream stream) noexcept nogil
cdef CUresult cuLaunchKernel(
    CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
    CUstream stream, void **parameters, void **extra) noexcept nogil
cdef CUresult cuLaunchKernelEx(
    const CUlaunchConfig *config, CUfunction function, void **parameters,
    void **extra) noexcept nogil
