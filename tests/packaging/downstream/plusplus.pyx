# distutils: language = c++
"""An operation of another project, compiled as C++."""

from cudadrv cimport (
    CUdeviceptr, CUresult, CUstream, Operation, WRITE, borrow, cuMemsetD8Async, issue,
)


cdef CUresult call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    return cuMemsetD8Async((<CUdeviceptr *>arguments)[0], 9, 1, stream)


def fill_one(buffer, stream):
    cdef Operation operation = Operation("plusplus.fill")
    cdef CUdeviceptr address = borrow(operation, buffer, WRITE)
    return issue(operation, stream, call, &address)
