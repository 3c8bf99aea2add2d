"""Peers: access of a device to the memory of another one."""

from cudadrv._device cimport Context, Device
from cudadrv._driver cimport CUmemAccess_flags, CUmemoryPool
from cudadrv._region cimport Region
from cudadrv._stream cimport Stream


cdef Py_ssize_t access_ends     # how often a call began to end access: see _peers.pyx

cdef int admit(CUmemoryPool pool, Device device, CUmemAccess_flags flags, str called) except -1
cdef object need_access(Region region, Context context, str graph)
cdef bint reaches(Context context, Region region) except -1
cdef int refuse_device(Region region, Stream stream) except -1
cdef int refuse_context(Region region, Stream stream) except -1


cdef inline int refuse_unreachable(Region region, Stream stream) except -1:
    """Refuse device memory that work on the stream cannot use.

    Such work can use memory of the stream's context, and memory to which this context has access.
    Streams of every context can use page-locked and managed memory. Returns 1 if the work needs the
    access, else 0.
    """
    if not region.portable and region.memory.context is not stream.context:
        return refuse_device(region, stream)
    return 0


cdef inline int refuse_other_context(Region region, Stream stream) except -1:
    """Like `refuse_unreachable`, for work that cannot use another context's memory even with
    access.
    """
    if not region.portable and region.memory.context is not stream.context:
        return refuse_context(region, stream)
    return 0
