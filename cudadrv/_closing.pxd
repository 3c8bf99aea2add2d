"""Closing: streams that are closed or dropped while their work may be unfinished."""

from cudadrv._device cimport Context
from cudadrv._driver cimport CUstream
from cudadrv._engine cimport own_stream


cdef void drop_stream(
    Context context, CUstream handle, own_stream *order, bint ours, unsigned long long identity,
    object owner) noexcept
cdef bint bury_stream(
    Context context, CUstream handle, own_stream *order, bint ours, unsigned long long identity
) except -1
cdef int bury_orphans() except -1
cdef bint is_dying(unsigned int slot) noexcept
cdef bint is_dead(CUstream handle) noexcept
cdef int make_room(Context context) except -1
