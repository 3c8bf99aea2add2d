"""Signal: a number that streams set and wait for."""

from libc.stdint cimport uint32_t, uint64_t

from cudadrv._capture cimport GraphNode, Plan
from cudadrv._device cimport Device
from cudadrv._engine cimport own_access
from cudadrv._event cimport Event, OpenWait
from cudadrv._region cimport Region
from cudadrv._stream cimport Stream


# The memory of a signal's number.
cdef class Word(Region):
    pass


# A set that is not known to be complete.
cdef class Point:
    cdef uint64_t number
    cdef Event event        # recorded behind the set; before that, the set is not queued yet
    cdef uint32_t site      # the line that queued it

    cdef bint is_known(self) noexcept


cdef class Signal


# A wait for a number that another process, a kernel or the host sets later.
cdef class Unset(OpenWait):
    cdef Signal signal
    cdef uint64_t number
    cdef str stream         # the name of the stream that waits


cdef class Signal:
    cdef Word word
    cdef bint external      # whether others set it, too, whom cudadrv does not see
    cdef uint64_t seen      # of an external signal: the largest number that the program has seen
    cdef bytes identity     # of an external signal: tells it from others
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
    cdef Point point_at(self, uint64_t number, str waits)
    cdef uint64_t look(self) noexcept
    cdef uint64_t last(self) noexcept


cdef Region word_of(Signal signal)
cdef int check_signal(object given, str call) except -1
cdef uint64_t checked_number(object value, Signal signal) except? 0
cdef int refuse_without_signals(Device device) except -1
cdef int borrow_set(Signal signal, own_access *access) except -1
cdef Unset unset_wait(Signal signal, uint64_t number, Stream stream)
cdef int refuse_in_body(Signal signal, str body) except -1
cdef int number_node(GraphNode node, Signal signal, uint64_t number) except -1
cdef GraphNode set_in(Plan plan, Signal signal, uint64_t number)
cdef int refuse_smaller_in(Plan plan, Signal signal, uint64_t number) except -1
