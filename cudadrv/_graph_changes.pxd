"""Graph changes: updates of executable graphs, and changes of single nodes of them."""

from libc.stdint cimport uint16_t, uint64_t

from cudadrv._capture cimport Holdings
from cudadrv._engine cimport own_access
from cudadrv._graph cimport ExecutableGraph, Uses


cdef class Next:
    cdef Uses uses
    cdef Holdings holdings
    cdef own_access *accesses   # NULL if the accesses stay
    cdef uint16_t operation
    cdef bint named             # this object owns the name `operation`, and gives it back
    cdef tuple calls            # the NodeCalls, or None if they stay
    cdef uint64_t number        # the number of the graph that has updated the executable last
    cdef bint paired


cdef class ExecutableNode:
    cdef ExecutableGraph executable
    cdef Py_ssize_t index
    cdef object __weakref__
