"""The three kinds of buffers."""

from libc.stdint cimport uint32_t

from cudadrv._buffer cimport Buffer
from cudadrv._device cimport Context
from cudadrv._driver cimport CUdeviceptr
from cudadrv._engine cimport own_export
from cudadrv._guard cimport page_lift
from cudadrv._stream cimport Stream


cdef class HostBuffer(Buffer):
    # The format of an item in the buffer protocol. None: not determined yet; b"": there is none.
    cdef bytes format

    cdef bytes item_format(self)
    cdef int open_view(self, own_export *view, str verb) except -1
    cdef HostBuffer _at(self, object key)
    cdef int export(self, Py_buffer *view, int flags, bint shared, object exporter) except -1


cdef class Borrowed:
    cdef HostBuffer buffer
    cdef own_export view
    cdef void *first        # the address of the first item
    cdef bint shared        # read-only, so that GPU work may read meanwhile
    cdef bint open          # whether `view` is open in the engine


cdef class HostView:
    cdef HostBuffer buffer
    cdef bint shared        # read-only, so that GPU work may read meanwhile
    cdef uint32_t site      # the line of the `with` statement
    cdef object borrowed    # a Borrowed, which holds the borrow
    cdef object hidden      # an array over the memory; NumPy's views of `array` refer to this one
    cdef object array       # the view of `hidden` that __enter__ returned
    cdef bint busy          # a thread is entering the block
    cdef page_lift lift     # of a function that a stream calls, in a guard


cdef HostView view_for_function(HostBuffer buffer, bint shared, CUdeviceptr first)
cdef void lift_guard_of(HostView view) noexcept
cdef str end_view_of_function(HostView view, object traceback, str array)


cdef class LockedBuffer(HostBuffer):
    pass


cdef class UnifiedBuffer(HostBuffer):
    pass


cdef class DeviceBuffer(Buffer):
    pass


cdef object class_of_kind(object kind, str what)
cdef Buffer new_buffer(
    object cls, Py_ssize_t count, object dtype, Context context, Stream stream, object name)
