"""Guard: pages that the host cannot use while operations use them."""

from cudadrv._driver cimport CUDADRV_GUARDS, cudadrv_table, unlikely
from cudadrv._engine cimport own_domain, own_memory, own_request

from libc.stdint cimport uint8_t, uintptr_t


cdef extern from "cudadrv/lift.h" nogil:
    ctypedef struct page_lift:
        uintptr_t start
        uintptr_t stop
        uint8_t right


cdef enum:
    # A flag of page-locked memory beside those for cuMemHostAlloc: it has pages of its own.
    OWN_PAGES = 1 << 30


# The flags for new page-locked memory: those of cuMemHostAlloc and, in a guard, OWN_PAGES.
cdef unsigned int locked_flags


cdef inline bint guards() noexcept nogil:
    """Whether pages are guarded. False until a guard begins."""
    return cudadrv_table.slowly & CUDADRV_GUARDS != 0


cdef size_t whole_pages(size_t nbytes) noexcept nogil
cdef int guard_memory(
    size_t address, size_t nbytes, own_memory *state, const own_domain *domain, str name,
    bint registered, bint same_tables) except -1
cdef int watch_managed(
    size_t address, size_t nbytes, own_memory *state, const own_domain *domain, str name
) except -1
cdef void leave_memory(size_t address, bint closed) noexcept
cdef void forget_pages(size_t address) noexcept nogil
cdef void guard_operation(const own_request *request) noexcept
cdef void host_may_use(const own_memory *state) noexcept
cdef void begin_lift(page_lift *lift) noexcept nogil
cdef void end_lift(const page_lift *lift) noexcept nogil
