"""The three kinds of buffers."""

from libc.stdint cimport uint32_t

from cudadrv._buffer cimport Buffer
from cudadrv._engine cimport own_export


cdef class HostBuffer(Buffer):
    cdef bytes format       # of one item, as the buffer protocol spells it, once asked for

    cdef bytes item_format(self)
    cdef int open_view(self, own_export *view, str verb) except -1
    cdef int export(self, Py_buffer *view, int flags, bint shared, object exporter) except -1


cdef class Borrowed:
    cdef HostBuffer buffer
    cdef own_export view
    cdef void *first
    cdef bint shared        # with GPU work that reads
    cdef bint open


cdef class HostView:
    cdef HostBuffer buffer
    cdef bint shared        # with GPU work that reads
    cdef uint32_t site
    cdef object borrowed    # the memory; the borrow ends with this object
    cdef object hidden      # the array over the memory: plain views of `array` refer to it
    cdef object array       # what the block was given


cdef class LockedBuffer(HostBuffer):
    pass


cdef class UnifiedBuffer(HostBuffer):
    pass


cdef class DeviceBuffer(Buffer):
    pass
