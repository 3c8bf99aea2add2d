"""Function: a kernel as the driver and the books know it."""

from libc.stdint cimport uint16_t

from cudadrv._driver cimport CUfunction, CUfunction_attribute
from cudadrv._likely cimport likely, unlikely
from cudadrv._module cimport Module, check_module
from cudadrv._shape cimport Limits, Shape
from cudadrv._signature cimport Signature
from cudadrv._stream cimport Stream


cdef class Function:
    cdef Module module
    cdef CUfunction raw         # lives as long as the module
    cdef Signature signature
    cdef Limits limits
    cdef uint16_t operation     # "launch of ...", for the books
    cdef int most_threads       # of a block
    cdef int most_shared        # dynamic shared memory of a block, in bytes
    cdef list reached           # variables that the text says it may touch, each as (Memory, mode)
    cdef list variables         # these, and the module's unlisted ones
    cdef Py_ssize_t changes     # the module's, when `variables` was made
    # What a plain launch was asked for last, and what `fill` made of it, if that is `plain`.
    cdef object last_grid
    cdef object last_block
    cdef object last_shared
    cdef Shape last_shape
    cdef object __weakref__

    cdef int usable(self) except -1
    cdef int fill(
        self, Shape *shape, object grid, object block, object shared_bytes, bint cooperative,
        object cluster) except -1
    cdef Stream stream_of(self, object stream)
    cdef int attribute(self, CUfunction_attribute attribute) except? -1
    cdef int set_attribute(self, CUfunction_attribute attribute, int value) except -1


cdef inline int check_function(Function function) except -1:
    """As `usable`, at no price for a kernel that is."""
    if unlikely(function.module is None):
        function.usable()
    return check_module(function.module)


cdef inline int shape_of(
    Function function, Shape *shape, object grid, object block, object shared_bytes,
    bint cooperative, object cluster
) except -1:
    """As `fill`, at no price for what was asked for last: launches come in rows."""
    if likely(grid is function.last_grid and block is function.last_block
              and shared_bytes is function.last_shared and cluster is None and not cooperative
              and function.last_shape.plain):
        shape[0] = function.last_shape
        return 0
    return function.fill(shape, grid, block, shared_bytes, cooperative, cluster)


cdef int occupancy_of(Function function, Shape *shape) except -1
