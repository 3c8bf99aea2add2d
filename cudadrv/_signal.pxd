"""Signal: a number that streams set and wait for."""

from libc.stdint cimport uint32_t, uint64_t

from cudadrv._event cimport Event
from cudadrv._region cimport Region


# The memory of a signal's number.
cdef class Word(Region):
    pass


# A set that is not known to be complete.
cdef class Point:
    cdef uint64_t number
    cdef Event event        # recorded behind the set; before that, the set is not queued yet
    cdef uint32_t site      # the line that queued it

    cdef bint is_known(self) noexcept


cdef class Signal:
    cdef Word word
    cdef uint64_t queued    # the largest number that was set, or whose set is queued
    cdef uint64_t reached   # the largest number that the host knows to be set
    cdef list points        # the sets that are not known to be complete, by their numbers
    cdef uint32_t site      # the line of the set of `queued`
    cdef object __weakref__

    cdef str called(self)
    cdef int usable(self) except -1
    cdef int usable_in_function(self) except -1
    cdef int forget_known(self) except -1
    cdef int add(self, Point point) except -1
    cdef int drop(self, Point point) except -1
    cdef Point point_at(self, uint64_t number)


cdef Region word_of(Signal signal)
