"""The three kinds of buffers."""

from libc.stdint cimport uint32_t

from cudadrv._buffer cimport Buffer
from cudadrv._engine cimport own_export


cdef class HostBuffer(Buffer):
    cdef bytes format       # an item's format in the buffer protocol: None: unknown, b"": none

    cdef bytes item_format(self)
    cdef int open_view(self, own_export *view, str verb) except -1
    cdef int export(self, Py_buffer *view, int flags, bint shared, object exporter) except -1


cdef class Borrowed:
    cdef HostBuffer buffer
    cdef own_export view
    cdef void *first
    cdef bint shared        # read-only, so that GPU work may read meanwhile
    cdef bint open


cdef class HostView:
    cdef HostBuffer buffer
    cdef bint shared        # read-only, so that GPU work may read meanwhile
    cdef uint32_t site      # the line of the `with` statement
    cdef object borrowed    # a Borrowed: the borrow ends when this object dies
    cdef object hidden      # the array over the memory: plain views of `array` refer to it
    cdef object array       # what __enter__ returned


cdef class LockedBuffer(HostBuffer):
    pass


cdef class UnifiedBuffer(HostBuffer):
    pass


cdef class DeviceBuffer(Buffer):
    pass
