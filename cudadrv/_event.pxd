"""Event: a point in a stream's work."""

from libc.stdint cimport int64_t

from cudadrv._device cimport Context
from cudadrv._driver cimport CUcontext, CUevent, CUresult, CUstream
from cudadrv._engine cimport own_event, own_snapshot


cdef CUresult query_event(CUcontext context, CUevent event) noexcept nogil
cdef CUresult query_stream(CUstream stream) noexcept nogil
cdef extern from *:
    """
    #define FOREVER INT64_MAX
    """
    int64_t FOREVER     # a deadline: when a wait ends, as of `now_ns`


cdef CUresult wait_for_event(
    CUcontext context, CUevent event, int64_t deadline=*) except *
cdef int64_t deadline_of(object timeout) except -1
cdef int refuse_to_wait_longer(str what, object timeout) except -1
cdef int64_t now_ns() noexcept nogil
cdef void pause_after(int64_t waited) noexcept nogil
cdef int let_others_go_on() except -1


# What `complete` finds out about the work before an event.
cdef enum:
    UNFINISHED
    COMPLETE
    RECORDED_ELSEWHERE  # on another stream: nothing tells any more


cdef class Event:
    cdef Context context   # the event dies with it
    cdef str name          # or None
    cdef bint timing
    cdef CUevent raw                # NULL once destroyed
    cdef own_event state
    cdef bint closing               # destroyed when the last of the waiters is back
    cdef bint exposed               # others may have the handle, and may record it in a capture
    cdef bint unusual               # closing or exposed
    cdef int waiters
    cdef bint lent                  # the handle is that of `lender`, which outlives this
    cdef Event lender
    cdef unsigned long long identity    # of the foreign stream of which it is the last, or 0
    cdef object __weakref__

    cdef str called(self)
    cdef int refuse_unrecorded(self, str what) except -1
    cdef bint wait_until(self, int64_t deadline) except -1
    cdef bint observe(self, own_snapshot *snapshot, int64_t deadline=*) except -1
    cdef int complete(self, own_snapshot *snapshot, int64_t deadline) except -1
    cdef CUresult ask(self, int64_t deadline) except *


cdef Event new_event(Context context, unsigned int flags)
