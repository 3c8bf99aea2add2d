"""Textures and surfaces: objects by which kernels use arrays."""

from libc.stdint cimport uint8_t

from cudadrv._region cimport Region


# The base of Texture and Surface.
cdef class Handle:
    cdef Region region      # what kernels use through it
    cdef Region object      # stands for the driver's object, so that launches can borrow that, too
    cdef object source      # the array or buffer that the program has passed
    cdef uint8_t mode       # how kernels use it: OWN_READ or OWN_WRITE
    cdef object __weakref__

    cdef int usable(self) except -1
