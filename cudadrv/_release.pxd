"""Release: memory goes back to the driver when freeing it cannot block."""

from cudadrv._device cimport Context
from cudadrv._driver cimport CUdeviceptr, CUresult, CUstream
from cudadrv._event cimport Event
from cudadrv._engine cimport own_memory
from cudadrv._memory_kinds cimport MemoryKind
from cudadrv._stream cimport Stream


cdef bint is_unused(own_memory *state, size_t start=*, size_t stop=*) noexcept
cdef dict last_uses(own_memory *state, size_t start, size_t stop, int operation=*)
cdef list users_of(own_memory *state, size_t start=*, size_t stop=*)
cdef bint may_finish() except -1
cdef bint finish_everything() except -1
cdef bint wait_to_free(Context context, MemoryKind kind) except -1
cdef int finish_before_free(Context context, MemoryKind kind) except -1
cdef bint is_idle(Context context) except -1
cdef bint is_complete(Event event) noexcept


cdef class Kept:
    cdef bint in_use(self) except -1


cdef CUresult free_unnoticed(
    Context context, MemoryKind kind, CUdeviceptr address, CUstream stream) noexcept nogil
cdef void release_part(
    object home, own_memory *state, size_t start, size_t stop, Context context,
    object owner) noexcept
cdef void release_later(
    MemoryKind kind, CUdeviceptr address, own_memory *state, Context context,
    object owner) noexcept
cdef bint is_to_be_freed(CUdeviceptr address, size_t nbytes) noexcept
ctypedef int (*forget_function)() except -1
cdef void forget_homes_with(forget_function function) noexcept
cdef int drain(bint may_block) except -1
cdef int drain_for_more() except -1
cdef Stream internal_stream(Context context)
cdef Stream lending_stream(Context context)
cdef Stream sharing_stream(Context context)
