"""In place: memory of the program that is page-locked where it is."""

from cudadrv._device cimport Context
from cudadrv._region cimport Region


cdef int register_region(Region region, object array, Context context, object name) except -1
