"""Sharing: buffers that are lent to other processes by tickets."""

from libc.stdint cimport uint64_t

from cudadrv._device cimport Context
from cudadrv._driver cimport CUdeviceptr
from cudadrv._event cimport Event, OtherWork
from cudadrv._memory cimport Memory
from cudadrv._region cimport Items, Region
from cudadrv._release cimport Kept
from cudadrv._stream cimport Stream


cdef class Ticket:
    cdef bytes data
    cdef uint64_t[2] digest     # the digest of the data
    # The fields of the data. `open` checks by the digest that the owner has made this ticket.
    cdef object pid, file, start, slot, offset, nbytes, total
    cdef bint on_host           # whether this is page-locked memory, and not memory of a device
    cdef object event_number
    cdef tuple owner            # pid, start and file: the key of the owner in dictionaries
    cdef bytes number, uuid, memory, event
    cdef tuple shape
    cdef Items items
    cdef object __weakref__


cdef class Receipt:
    cdef bytes data
    cdef object pid, slot
    cdef bytes number
    cdef object __weakref__


cdef class Sharing(Kept):
    cdef bytes handle           # the driver's handle of the memory
    cdef object base, total     # address and size of the whole allocation
    cdef Py_ssize_t uses        # number of tickets that have not ended


cdef class Opened:
    cdef Ticket ticket
    cdef Context context
    cdef object claim           # None until the ticket is claimed
    cdef Event event
    cdef CUdeviceptr base       # the address of the whole allocation
    cdef size_t total
    cdef object process         # the owner
    cdef OtherWork work         # the owner's work that a stream waits for; None if it was complete


cdef Ticket share_region(Region region, Stream stream, bint waits)
cdef int accept_region(Region region, object receipt, Stream stream) except -1
cdef Opened open_ticket(Ticket ticket, Context context)
cdef int await_owner(Opened opened, Stream stream) except -1
cdef int use_opened(Opened opened) noexcept
cdef int settle_shares() except -1
cdef bint is_opened(Memory memory) noexcept
cdef Receipt return_opened(Region region, Stream stream)
