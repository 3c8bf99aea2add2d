"""HostView: the array of a ``with buffer.read()`` or ``with buffer.write()`` block."""

from libc.stdint cimport uint32_t

from cudadrv._host_buffer cimport HostBuffer


cdef class HostView:
    cdef HostBuffer buffer
    cdef bint shared        # with GPU work that reads
    cdef uint32_t site
    cdef object borrowed    # the memory; the borrow ends with this object
    cdef object hidden      # the array over the memory: plain views of `array` refer to it
    cdef object array       # what the block was given
