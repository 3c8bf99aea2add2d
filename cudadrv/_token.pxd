"""Token: one operation that was queued."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from cudadrv._event cimport Event
from cudadrv._likely cimport unlikely
from cudadrv._operation cimport Operation
from cudadrv._ownership cimport own_snapshot
from cudadrv._stream cimport Stream


cdef class Knowledge:
    cdef own_snapshot snapshot  # owns its clock


cdef class Token:
    # Every operation makes one: a new one is cleared, and 80 bytes are what compilers clear without
    # a string instruction, which takes longer than all the rest. So it has no methods in C, either.
    cdef readonly Stream stream
    cdef object source      # what is read: a buffer, a tuple of buffers, or None
    cdef object target      # what is written
    cdef object asked       # the Event, once somebody has asked; before, perhaps a Knowledge
    cdef uint64_t seq       # of the operation
    cdef uint32_t slot      # of its stream
    cdef uint32_t site_number
    cdef uint16_t operation
    cdef object __weakref__


cdef Token new_token(Stream stream, object source, object target)
cdef void keep_knowledge(Token token, own_snapshot *issued) noexcept


cdef inline void stand_for(Token token, Operation *operation) noexcept:
    """The operation was issued, and the token takes over its snapshot."""
    token.seq = operation.request.issued.seq
    token.slot = operation.request.issued.slot
    token.site_number = operation.request.site
    token.operation = operation.request.operation
    if unlikely(operation.request.issued.clock is not NULL):
        keep_knowledge(token, &operation.request.issued)
