"""Device: one GPU, by ordinal."""

from cudadrv._driver cimport CUdevice


cdef class Device:
    cdef int ordinal
    cdef CUdevice raw
    cdef object __weakref__

    cdef int attribute_value(self, int attribute) except? -1
