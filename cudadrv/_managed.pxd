"""Managed memory: prefetches and advice."""

from cudadrv._driver cimport CUmemLocation
from cudadrv._region cimport Region
from cudadrv._token cimport Token


cdef CUmemLocation place_of(object place) except *
cdef Token prefetch_region(Region region, object place, object stream)
cdef int advise_region(
    Region region, object read_mostly, object preferred, object accessed_by) except -1
cdef object advice_of(Region region)
