"""Allocation: memory for a new buffer, out of a pool or from the driver."""

from cudadrv._context cimport Context
from cudadrv._driver cimport CUdeviceptr
from cudadrv._memory cimport Memory
from cudadrv._release cimport MemoryKind
from cudadrv._stream cimport Stream


cdef Memory allocate_memory(
    MemoryKind kind, Context context, size_t nbytes, unsigned int flags, Stream stream, str label,
    bint pooled)
cdef Memory adopt_memory(
    MemoryKind kind, Context context, CUdeviceptr address, size_t nbytes, object owner, str label)
