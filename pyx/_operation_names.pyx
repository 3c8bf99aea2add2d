"""Words for operations and streams in messages."""

from libc.stdint cimport uint16_t, uint64_t, uint8_t

from cudadrv._ownership cimport OWN_LEGACY

cdef tuple NAMES = (
    "copy_from", "copy_to", "copy_from_async", "copy_to_async", "fill", "fill_async",
    "its allocation", "close", "lend",
)


cdef str operation_name(uint16_t operation):
    return NAMES[operation]


cdef str stream_name(uint64_t number, uint8_t order):
    """As in ``repr(stream)``: a number that is never used again in this process."""
    return f"the legacy default stream ({number})" if order == OWN_LEGACY else f"Stream {number}"


cdef str closed_stream(uint64_t number, uint8_t order):
    return f"{stream_name(number, order)} is closed: it takes no more work, and what it has still" \
           " runs. To wait for that: a token or an event of it, or context.synchronize()"
