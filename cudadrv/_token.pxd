"""Token: one operation that was queued."""

from libc.stdint cimport uint16_t, uint32_t

from cudadrv._event cimport Event
from cudadrv._likely cimport unlikely
from cudadrv._operation cimport Operation
from cudadrv._ownership cimport own_snapshot
from cudadrv._stream cimport Stream


cdef class Knowledge:
    cdef own_snapshot snapshot  # owns its clock


cdef class Token:
    cdef readonly Stream stream
    cdef object source      # what is read: a buffer, a tuple of buffers, or None
    cdef object target      # what is written
    cdef own_snapshot snapshot      # the clock is of `knowledge`
    cdef Knowledge knowledge
    cdef uint32_t site_number
    cdef uint16_t operation
    cdef Event event    # recorded when somebody first asks
    cdef object __weakref__

    cdef Event event_of(self)


cdef void keep_knowledge(Token token) noexcept
cdef Token new_token(Stream stream, object source, object target)


cdef inline void stand_for(Token token, Operation *operation) noexcept:
    """The operation was issued, and the token takes over its snapshot."""
    token.snapshot = operation.request.issued
    token.site_number = operation.request.site
    token.operation = operation.request.operation
    if unlikely(token.snapshot.clock is not NULL):
        keep_knowledge(token)
