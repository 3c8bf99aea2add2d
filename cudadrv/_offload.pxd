"""Offload: arrays of the host that a device uses for a block, or for one launch."""

from libc.stdint cimport uint32_t

from cudadrv._buffers cimport DeviceBuffer, LockedBuffer
from cudadrv._engine cimport own_export
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


# How an array is used. IN: its items are copied to the device. OUT: it gets results. INOUT: both.
cdef enum Way:
    IN = 1
    OUT = 2
    INOUT = 3


cdef class ArrayArgument:
    cdef object array
    cdef Way way
    cdef object __weakref__


cdef class Capture:
    cdef object array           # the array that the program passed
    cdef tuple shape            # the array's shape, dtype and number of items at the capture
    cdef object dtype
    cdef Py_ssize_t count
    cdef Way way
    cdef str label              # the name of the array in messages, such as "inout array 0"
    cdef size_t start           # the address of the array's memory
    cdef size_t nbytes          # the size of this memory
    cdef uint32_t site          # the line that captured the array
    cdef bint over              # whether the capture has ended
    cdef bint locked            # whether the array is read-only because of this capture
    cdef DeviceBuffer buffer    # the items on the device
    cdef LockedBuffer home      # the page-locked buffer where results arrive; None for IN
    # These are in use while results are copied from `home` to the array.
    cdef Py_buffer view         # the array's memory
    cdef own_export export      # the host view of `home`
    cdef bint viewed            # whether `view` is open
    cdef bint exported          # whether `export` is open

    cdef str describe(self)


cdef list captures_of(tuple arguments, Stream stream)
cdef int upload(list captures, Stream stream) except -1
cdef int end_captures(list captures) except -1
cdef object bring_home_later(Token token, list captures, Stream stream)
