"""HostBuffer: what LockedBuffer and UnifiedBuffer add: the host can see their bytes."""

from cudadrv._buffer cimport Buffer
from cudadrv._ownership cimport own_export


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
