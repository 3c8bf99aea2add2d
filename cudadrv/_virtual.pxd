"""Virtual: reserved addresses, and the memory that is mapped to them."""

from libc.stdint cimport uint32_t

from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUcontext, CUdeviceptr, CUmemAccessDesc, CUmemGenericAllocationHandle, CUresult,
)


# Reserved addresses, the first `mapped` of which have memory. Memory is mapped and unmapped in
# pieces. The lock of its Growth guards a span.
cdef struct Span:
    CUcontext context       # current in all driver calls
    CUdeviceptr address     # 0 before the addresses are reserved and after they are freed
    size_t nbytes           # number of reserved addresses
    size_t granularity      # all sizes are multiples of this
    size_t mapped
    size_t usable           # number of mapped bytes to which the devices were given access
    size_t *ends            # for each piece, the offset of its end
    size_t pieces
    size_t room             # number of elements of `ends`
    CUmemAccessDesc *users  # the devices that may use the memory, which is on the first of them
    size_t devices          # number of elements of `users`
    # Memory whose handle could not be released, or 0. The next call tries again.
    CUmemGenericAllocationHandle unreleased


# What only memory that grows has. Its lock is held by a thread that changes the span, closes the
# memory, or moves its buffer.
cdef class Growth:
    cdef Span *span         # NULL if the memory is closed
    cdef object lock
    cdef unsigned long long thread  # the thread that has the lock, or 0
    cdef uint32_t site      # the line at which that thread took the lock

    cdef int begin(self, str verb, str label) except -1
    cdef int end(self) except -1


cdef inline size_t round_up(const Span *span, size_t nbytes) noexcept nogil:
    return (nbytes + span.granularity - 1) // span.granularity * span.granularity


cdef Span *new_span(Context context, size_t nbytes, list devices) except NULL
cdef CUresult reserve(Span *span) noexcept nogil
cdef CUresult map_until(Span *span, size_t end) noexcept nogil
cdef CUresult unmap_from(Span *span, size_t end) noexcept nogil
cdef CUresult free_span(Span *span, bint anyway) noexcept nogil
cdef void drop_span(Span *span) noexcept nogil
cdef bint can_use(const Span *span, Context context) noexcept
