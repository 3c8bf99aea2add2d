"""Streams that are named by something else than their object: a handle, or a slot of the engine."""

from libc.stdint cimport uint64_t

from cudadrv._context cimport Context

cdef object user_of(unsigned int slot, uint64_t seq)
cdef object find_user(unsigned int slot, uint64_t seq)
cdef bint may_synchronize(Context context) except -1
