"""Chunked copies: large arrays go through a ring of stages, by several threads."""

from cudadrv._region cimport Region
from cudadrv._stream cimport Stream

cdef bint is_worth_chunks(size_t nbytes) noexcept
cdef int copy_chunks(Region region, char *ordinary, Stream stream, int name) except -1
