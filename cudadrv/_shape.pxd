"""Shape: grid, block and shared memory of a launch."""

from cudadrv._device cimport Device


cdef struct Shape:
    unsigned int grid[3]
    unsigned int block[3]
    unsigned int cluster[3]     # zeros: none
    unsigned int shared_bytes
    bint cooperative
    bint plain                  # without cluster and not cooperative


cdef class Limits:
    cdef Device device
    cdef unsigned int grid[3]
    cdef unsigned int block[3]
    cdef readonly int shared_bytes      # that a block can have, if its kernel asks for it
    cdef readonly int multiprocessors
    cdef readonly bint cooperative
    cdef readonly bint clusters


cdef Limits limits_of(Device device)
cdef int fill_shape(
    Shape *shape, Limits limits, object grid, object block, object shared_bytes, bint cooperative,
    object cluster) except -1
cdef unsigned long long threads_of(Shape *shape) noexcept
cdef str dimensions(const unsigned int *sizes)
