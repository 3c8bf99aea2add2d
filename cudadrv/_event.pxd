"""Event: a point in a stream's work."""

from libc.stdint cimport int64_t

from cudadrv._device cimport Context
from cudadrv._driver cimport CUcontext, CUevent, CUresult, CUstream
from cudadrv._engine cimport own_event, own_snapshot


cdef CUresult query_event(CUcontext context, CUevent event) noexcept nogil
cdef CUresult query_stream(CUstream stream) noexcept nogil
cdef CUresult wait_for_event(CUcontext context, CUevent event) except *
cdef int64_t now_ns() noexcept nogil
cdef void pause_after(int64_t waited) noexcept nogil
cdef int let_others_go_on() except -1


cdef class Event:
    cdef Context context   # kept alive: the driver destroys events with their context
    cdef bint timing
    cdef CUevent raw                # NULL once destroyed
    cdef own_event state            # the engine's record of the event
    cdef bint closing               # close() was called; the last of `waiters` destroys the handle
    cdef bint exposed               # other libraries may have the handle, and capture with it
    cdef bint unusual               # closing or exposed: excluded from the fast path
    cdef int waiters                # threads that are querying the handle
    cdef bint lent                  # the handle belongs to `lender`
    cdef Event lender               # kept alive as long as this event uses its handle
    cdef unsigned long long identity    # of the closed foreign stream whose ghost it is, or 0
    cdef object __weakref__

    cdef int refuse_unrecorded(self, str what) except -1
    cdef int observe(self, own_snapshot *snapshot) except -1
    cdef bint complete(self, own_snapshot *snapshot, bint wait) except -1
    cdef CUresult ask(self, bint wait) except *


cdef Event new_event(Context context, unsigned int flags)
