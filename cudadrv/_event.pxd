"""Event: a point in a stream's work."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from cudadrv._device cimport Context
from cudadrv._driver cimport CUcontext, CUevent, CUresult, CUstream
from cudadrv._engine cimport own_event, own_snapshot, own_stream


cdef enum:
    FOR_PROGRAM = 0     # the program gets the answer
    UNTIL_DONE = 1      # the program asks again until the work is done
    FOR_REUSE = 2       # only cudadrv uses the answer, for example to use memory again

cdef void ask_for(int purpose) noexcept nogil
cdef CUresult query_event(CUcontext context, CUevent event) noexcept nogil
cdef CUresult query_stream(CUstream stream) noexcept nogil
cdef CUresult write_prints_of_stream(CUstream stream) noexcept nogil
cdef extern from *:
    """
    #define FOREVER INT64_MAX
    """
    int64_t FOREVER     # the deadline of a wait without a timeout; deadlines are times of `now_ns`


cdef CUresult wait_for_event(
    CUcontext context, CUevent event, const own_snapshot *snapshot, int64_t deadline=*) except *
cdef int64_t deadline_of(object timeout) except -1
cdef int refuse_to_wait_longer(str what, object timeout) except -1
cdef int64_t now_ns() noexcept nogil
cdef void pause_after(int64_t waited) noexcept nogil
cdef int let_others_go_on() except -1


# What `Event.complete` returns.
cdef enum:
    UNFINISHED
    COMPLETE
    # The event was recorded on another stream meanwhile, so it cannot tell whether the work before
    # the earlier record is complete.
    RECORDED_ELSEWHERE


cdef str BY_STREAM      # what a stream does with an event, for `refuse_unrecorded`


# What an event that was recorded in a capture stands for. The base class of `Point`, which is in
# _capture.
cdef class Captured:
    cdef str where(self)    # "in the capture of graph 'step', begun at step.py:7,"


cdef class Event:
    cdef Context context   # kept alive: the driver destroys events with their context
    cdef str name          # the name in messages, or None
    cdef bint timing
    cdef CUevent raw                # NULL once destroyed
    cdef own_event state            # the engine's record of the event
    cdef bint closing               # close() was called; the last of `waiters` destroys the handle
    cdef bint exposed               # other libraries may have the handle, and capture with it
    cdef Captured captured          # the point of its latest record in a capture, or None
    cdef bint in_capture            # whether the latest record was in a capture of cudadrv
    # closing, exposed or in_capture, and so excluded from the fast path
    cdef bint unusual
    cdef int waiters                # threads that are querying the handle
    cdef bint lent                  # the handle belongs to `lender`
    cdef Event lender               # kept alive as long as this event uses its handle
    # cuStreamGetId of the foreign stream whose ghost this event is; 0 for all other events.
    cdef unsigned long long identity
    cdef uint64_t birth             # see _site.pyx
    cdef object __weakref__

    cdef str called(self)
    cdef int refuse_unrecorded(self, str what) except -1
    cdef int refuse_now(self, str what) except -1
    cdef void enter_capture(self) noexcept nogil
    cdef void leave_capture(self) noexcept nogil
    cdef bint wait_until(self, int64_t deadline) except -1
    cdef bint observe(self, own_snapshot *snapshot, int64_t deadline=*) except -1
    cdef int complete(self, own_snapshot *snapshot, int64_t deadline) except -1
    cdef CUresult ask(self, int64_t deadline) except *


# Work of another process for which a stream of this one waits.
cdef class OtherWork:
    cdef Event event        # complete when that work is complete
    cdef uint32_t slot      # the slot of the stream's operation that waits for `event`
    cdef uint64_t seq       # the number of that operation in the slot
    cdef uint32_t site      # the line of the call that made the stream wait

    cdef bint has_ended(self) except -1     # whether the other process has ended
    cdef object pid(self)


# A wait of a stream for something that cudadrv does not see: it may end at any time, or never.
cdef class OpenWait:
    cdef uint32_t slot      # the slot of the operation that waits
    cdef uint64_t seq       # the number of that operation in the slot; 0: not queued yet
    cdef uint32_t site      # the line of the call

    cdef bint is_open(self) noexcept    # whether nothing has told the program that it has ended
    cdef str called(self)


cdef bint some_are_open     # whether there may be open waits
cdef int open_wait(OpenWait wait) except -1
cdef int drop_open_wait(OpenWait wait) except -1
cdef OpenWait open_wait_in(const own_snapshot *snapshot)
cdef OpenWait open_wait_of(const own_stream *order)
cdef int refuse_behind(const own_snapshot *snapshot, str what, const own_stream *order) except -1

cdef int await_other(OtherWork work, const own_stream *order) except -1
cdef int forget_other(OtherWork work) except -1
cdef bint is_unfinished(Event event) except -1
cdef int refuse_endless(const own_snapshot *snapshot) except -1

cdef Event new_event(Context context, unsigned int flags)
cdef Event open_event(Context context, bytes name)
cdef Event marker_of(Context context)
