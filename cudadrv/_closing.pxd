"""Closing: streams that are closed or dropped while their work may be unfinished."""

from cpython.ref cimport PyObject

from cudadrv._device cimport Context
from cudadrv._driver cimport CUstream
from cudadrv._engine cimport own_stream
from cudadrv._event cimport Event


cdef void drop_stream(
    Context context, CUstream handle, own_stream *order, bint ours, unsigned long long identity,
    object owner) noexcept


cdef enum:      # what `bury_stream` returns
    GONE
    LENT
    CAPTURING

cdef int bury_stream(
    Context context, CUstream handle, own_stream *order, bint ours, unsigned long long identity
) except -1
cdef int bury_orphans() except -1
cdef bint is_dying(unsigned int slot) noexcept
cdef bint is_dead(CUstream handle) noexcept
cdef own_stream *take_orphan(
    Context context, CUstream handle, unsigned long long identity, PyObject **owner) noexcept
cdef own_stream *take_ghost(
    Context context, unsigned long long identity, PyObject **last) noexcept
cdef int make_room(Context context) except -1
cdef int forget_ghosts(Context context, Event useless) except -1
