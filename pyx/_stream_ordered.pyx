"""Stream-ordered memory: allocating and freeing it are writes on a stream.

Also where a cache gives and takes the memory, and the driver is not asked: users on other streams
have to be ordered after the allocation, and with it after what the stream has waited for by then.
That is for non-blocking streams. Calls on the others are themselves what orders streams, by the
rules of the default streams, and a call that is left out would not.
"""

from cudadrv._driver cimport (
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult, CUstream, bind_driver, cudadrv_table,
    cuMemAllocAsync, cuMemFreeAsync,
)
from cudadrv._operation cimport REFUSED, Operation, borrow_all, driver_call, issue, note, prepare
from cudadrv._operation_names cimport ALLOCATION, RELEASE
from cudadrv._ownership cimport (
    OWN_MEMORY_CLOSED, OWN_STRICT, OWN_WAIT, OWN_WRITE, engine, own_access,
    own_memory_prepare_used, own_snapshot_drop,
)
from cudadrv._refusal cimport refuse_operation
from cudadrv._stream cimport Stream

bind_driver(&cudadrv_table)


cdef CUresult _allocate_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef StreamOrdered *memory = <StreamOrdered *>arguments
    return cuMemAllocAsync(&memory.address, memory.nbytes, stream)


cdef CUresult _free_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef StreamOrdered *memory = <StreamOrdered *>arguments
    return cuMemFreeAsync(memory.address, stream)


cdef CUresult _no_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    return CUDA_SUCCESS


cdef int allocate_on(StreamOrdered *memory, Stream stream, str label) except? -1:
    """Allocate it, unless it is `cached`: 0, or of the driver's, CUDA_ERROR_OUT_OF_MEMORY."""
    return _write_on(memory, stream, ALLOCATION, OWN_STRICT, label,
                     _no_call if memory.cached else _allocate_call)


cdef int free_on(StreamOrdered *memory, Stream stream, int policy, str label) except? -1:
    """Free it, or make it `cached`: 0, or REFUSED - OWN_MEMORY_CLOSED.

    A policy may wait for the memory's users, and never ignores them.
    """
    return _write_on(memory, stream, RELEASE, OWN_WAIT if policy == OWN_WAIT else OWN_STRICT, label,
                     _no_call if memory.cached else _free_call)


cdef int _write_on(
    StreamOrdered *memory, Stream stream, int name, int policy, str label, driver_call call
) except? -1:
    """Issue the call as a write of the whole memory."""
    cdef Operation operation
    cdef own_access access
    borrow_all(memory.state, &access, OWN_WRITE, policy)
    access.closes = name == RELEASE
    prepare(&operation, name, &access, 1, call, memory)
    operation.request.passive = True
    reason = note(&operation, stream) if memory.cached else issue(&operation, stream)
    if reason == 0:
        if memory.after is not NULL:
            own_memory_prepare_used(memory.after, memory.nbytes, &operation.request)
        own_snapshot_drop(engine, &operation.request.issued)
    elif name == RELEASE and reason == REFUSED - OWN_MEMORY_CLOSED:
        return reason  # another thread frees it, since the caller looked
    elif name == RELEASE or memory.cached or reason != CUDA_ERROR_OUT_OF_MEMORY:
        refuse_operation(&operation, reason, stream, (label,))
    return reason
