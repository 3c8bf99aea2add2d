"""Token: one operation that was queued."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from cudadrv._event cimport Event
from cudadrv._driver cimport unlikely
from cudadrv._operation cimport Operation
from cudadrv._engine cimport own_snapshot
from cudadrv._stream cimport Stream


cdef extern from "cudadrv/recycled.h":
    ctypedef struct token_store:
        uint32_t count
    object token_anew(token_store *store, object stream, object source, object target)


cdef class Knowledge:
    cdef own_snapshot snapshot  # owns its clock


cdef class Token:
    # The first fields are the same as in token_fields of recycled.h. The class must not have C
    # methods, because Cython would then add a field before these.
    cdef Stream stream
    cdef object source      # see `new_token`
    cdef object target
    cdef object asked       # None or a Knowledge; later the token's Event, if it was needed
    cdef uint64_t seq       # the operation's number in the slot
    cdef uint32_t slot      # the slot of the operation's stream
    cdef uint32_t site_number
    cdef uint16_t operation
    # For a launch with few buffers, `source` and `target` are buffers, or None, and `modes` has 1
    # plus the mode in which the launch uses each. Otherwise both modes are 0.
    cdef uint8_t modes[2]
    cdef object __weakref__


cdef token_store *ended_tokens
cdef Token first_token(Stream stream, object source, object target)
cdef int wait_for_token(Token token, object timeout) except -1
cdef void take_snapshot(Token token, own_snapshot *issued) noexcept
cdef void keep_knowledge(Token token, own_snapshot *issued) noexcept


cdef inline Token new_token(Stream stream, object source, object target):
    """Make the token of an operation. This is done before the operation is issued, because nothing
    may fail afterwards.

    `source` is what the operation reads, and `target` what it writes. Each is a buffer, a tuple of
    buffers, or None. For a launch with many buffers, `source` is the tuple of its arguments, and
    `target` a function that finds the buffers among them, because most programs never ask for these
    buffers. For a launch with few buffers, `source` and `target` are the buffers: see `modes`.
    """
    if unlikely(ended_tokens.count == 0):
        return first_token(stream, source, target)
    return <Token>token_anew(ended_tokens, stream, source, target)


cdef inline bint stand_for(Token token, Operation *operation) noexcept:
    """Let a token stand for an operation that was issued. The token takes over the snapshot.

    Returns False for most operations, and True for one that was captured.
    """
    token.seq = operation.request.issued.seq
    token.slot = operation.request.issued.slot
    token.site_number = operation.request.site
    token.operation = operation.request.operation
    token.modes[0] = token.modes[1] = 0
    if unlikely(operation.request.issued.clock is not NULL):
        keep_knowledge(token, &operation.request.issued)
        return True
    return False
