"""Place: where managed memory and memory of the driver's pools is."""

from cudadrv._device cimport Device
from cudadrv._driver cimport CUmemLocation

cdef enum:  # values of CUmemLocationType that the headers of CUDA 12.0 and 12.1 lack
    HOST = 2
    NUMA_NODE = 3


cdef CUmemLocation place_of(object place) except *
cdef int check_place(object place) except -1
cdef bint is_concurrent(Device device) except -1
cdef int check_concurrent(Device device, str what) except -1
