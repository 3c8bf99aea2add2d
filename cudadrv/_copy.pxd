"""Copies between buffers."""

from cudadrv._driver cimport CUdeviceptr, CUresult, CUstream
from cudadrv._likely cimport likely, unlikely
from cudadrv._region cimport Region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


cdef struct Copy:
    CUdeviceptr target
    CUdeviceptr source
    size_t nbytes
    bint target_is_host
    bint source_is_host


cdef CUresult copy_call(void *arguments, CUstream stream, bint *queued) noexcept nogil
cdef int copy_and_wait(int name, Region target, Region source, object stream) except -1
cdef Token nothing_to_do(int name, Stream stream, Region source, Region target)
cdef Stream blocking_stream(Stream stream, Region region)
cdef Token copy_async(int name, Region target, Region source, object stream, str method)
cdef Stream current_stream(object stream, Region region, str method)
cdef int refuse_device(Region region, Stream stream) except -1
cdef int refuse_other_dtype(Region region, object dtype, str other) except -1


cdef inline Stream required_stream(object stream, Region region, str method):
    """The stream of an asynchronous method: the argument, else the current one."""
    if likely(isinstance(stream, Stream)):
        return <Stream>stream
    return current_stream(stream, region, method)


cdef inline int refuse_other_device(Region region, Stream stream) except -1:
    """Device memory goes only with streams of its context, other memory with every device."""
    if unlikely(not region.portable and region.memory.context is not stream.context):
        refuse_device(region, stream)
    return 0
