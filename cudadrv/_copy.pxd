"""Copies between buffers."""

from cudadrv._device cimport Context
from cudadrv._driver cimport CUdeviceptr, CUevent, CUresult, CUstream, likely
from cudadrv._region cimport Region, pointer_of
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


cdef struct Copy:
    CUdeviceptr target
    CUdeviceptr source
    size_t nbytes
    bint target_is_host
    bint source_is_host
    CUevent marker  # the stream records it and waits for it before the copy; or NULL


# In _copy.pyx: up to this size, a driver may read page-locked memory too early.
cdef enum:
    MOST_READ_EARLY = 1 << 16


cdef bint are_apart(Region target, Region source) noexcept
cdef CUresult copy_call(void *arguments, CUstream stream, bint *queued) noexcept nogil
cdef int copy_and_wait(int name, Region target, Region source, object stream) except -1
cdef Token nothing_to_do(int name, Stream stream, object source, object target)
cdef Region device_side_of(Region target, Region source)
cdef Stream blocking_stream(Stream stream, Region region)
cdef Token copy_async(int name, Region target, Region source, object stream, str method)
cdef Stream current_stream(object stream, Region region, str method)
cdef Stream stream_of_copy(Region target, Region source, object stream)
cdef int check_pair(Region target, Region source) except -1
cdef object access_for_copy(Region target, Region source, Context context, str graph)
cdef int find_lost(Context context) except -1
cdef int refuse_other_dtype(Region region, object dtype, str other) except -1


cdef inline Stream required_stream(object stream, Region region, str method):
    """Return the stream of an asynchronous method: the argument, else the current one."""
    if likely(isinstance(stream, Stream)):
        return <Stream>stream
    return current_stream(stream, region, method)


cdef inline bint is_usual(Region target, Region source, Context context) noexcept:
    """Fast path: whether a copy needs no further checks of its arguments, and copies something.

    If one of them is a box, their shapes may still differ.
    """
    return target.memory is not None and source.memory is not None \
        and target.memory.state is not source.memory.state \
        and target.memory.context is context and source.memory.context is context \
        and target.dtype is source.dtype and target.count == source.count and target.count \
        and not target.memory.state.closed and not source.memory.state.closed \
        and not target.moved and not source.moved \
        and pointer_of(target) != pointer_of(source)
