"""Memory that comes from elsewhere, by address."""

from cudadrv._context cimport Context
from cudadrv._driver cimport CUdeviceptr
from cudadrv._release cimport MemoryKind

cdef int check_external(
    Context context, MemoryKind kind, CUdeviceptr address, str label) except -1
