"""Managed memory: prefetches, discards, attachments and advice."""

from cudadrv._engine cimport own_export
from cudadrv._region cimport Region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


cdef Token prefetch_region(Region region, object place, object stream)
cdef Token discard_region(Region region, bint moves, object place, object stream)
cdef Token attach_region(Region region, object to, object stream)
cdef Token move_region(Region region, object place, Stream stream)
cdef int advise_region(
    Region region, object read_mostly, object preferred, object accessed_by) except -1
cdef object advice_of(Region region)
cdef int keep_open(Region region, own_export *view) except -1
