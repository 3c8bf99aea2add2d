"""Operation: the one way in which work reaches a stream."""

from cudadrv._driver cimport CUresult, CUstream
from cudadrv._ownership cimport own_access, own_memory, own_request
from cudadrv._site cimport here
from cudadrv._stream cimport Stream

# Makes the driver calls of one operation. Sets *queued once the driver has accepted one of them.
ctypedef CUresult (*driver_call)(
    void *arguments, CUstream stream, bint *queued) noexcept nogil


cdef struct Operation:
    own_request request
    driver_call call
    void *arguments


# Reasons of `issue` below the driver's statuses and those of Stream.enter.
cdef enum:
    REFUSED = -100  # minus the engine's answer


cdef void borrow_all(own_memory *memory, own_access *access, int mode, int policy) noexcept
cdef int issue(Operation *operation, Stream stream) except? -1
cdef int note(Operation *operation, Stream stream) except? -1
cdef int attempt(Operation *operation, Stream stream) except? -1 nogil
cdef int ask(Operation *operation, Stream stream) except? -1


cdef inline void prepare(
    Operation *operation, int name, own_access *accesses, int count, driver_call call,
    void *arguments
) noexcept:
    """Fill in an operation that the user's current line makes."""
    operation.request.accesses = accesses
    operation.request.count = count
    operation.request.operation = name
    operation.request.site = here()
    operation.request.loan = NULL
    operation.request.returns = False
    operation.request.passive = False
    operation.call = call
    operation.arguments = arguments
