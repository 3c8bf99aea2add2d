"""Foreign: memory that cudadrv did not allocate."""

from cudadrv._device cimport Context
from cudadrv._driver cimport CUdeviceptr
from cudadrv._engine cimport own_memory
from cudadrv._memory cimport Memory
from cudadrv._memory_kinds cimport MemoryKind


cdef Memory adopt_memory(
    MemoryKind kind, Context context, CUdeviceptr address, size_t nbytes, object owner, str label)
cdef Memory adopt_opened(
    Context context, CUdeviceptr first, size_t size, CUdeviceptr address, size_t nbytes,
    object owner, str label)
cdef int return_to_owner(Memory memory, own_memory *closed) except -1
cdef MemoryKind kind_at(Context context, CUdeviceptr address, int *device) except? NULL
cdef int check_external(
    Context context, MemoryKind kind, CUdeviceptr address, str label) except -1
