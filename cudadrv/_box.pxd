"""Boxes: parts of buffers with two or three dimensions, whose rows have gaps between them."""

cimport cython

from cudadrv._engine cimport own_box


@cython.final
cdef class Part:
    """What an index names in an array."""

    cdef tuple sizes
    cdef tuple steps
    cdef tuple ranges       # for each dimension of the array: (start, stop), or an integer
    cdef Py_ssize_t offset  # of the first item, in bytes


cdef tuple steps_of(tuple sizes, Py_ssize_t itemsize)
cdef Part part_at(tuple sizes, tuple steps, object key)
cdef bint is_item(object key, Py_ssize_t dimensions) except -1
cdef tuple ranges_within(tuple outer, tuple inner)
cdef tuple whole_ranges(tuple sizes)
cdef str told(tuple ranges)
cdef int lay_out(tuple sizes, tuple steps, Py_ssize_t itemsize, own_box *box) except -1
cdef int lay_out_both(
    tuple sizes, tuple steps, tuple other, Py_ssize_t itemsize, own_box *box, own_box *box2
) except -1
