"""Stream: a queue of work of one context."""

from cpython.pystate cimport PyThreadState, PyThreadState_Get
from libc.stdint cimport int64_t, uint32_t, uint64_t

from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_SUCCESS, CUresult, CUstream, cudadrv_table, enter_context, likely, unlikely,
)
from cudadrv._engine cimport OWN_OPEN, own_snapshot, own_stream, own_tag
from cudadrv._event cimport Event


cdef extern from "cudadrv/only_thread.h":
    bint is_only_thread(const PyThreadState *own)
    PyThreadState *PyEval_SaveThread() nogil
    void PyEval_RestoreThread(PyThreadState *own) nogil


# A capture of streams into a graph. The base class of `Capture`, which is in _capture.
cdef class Capturing:
    cdef str graph          # the graph's name in messages, such as "graph 'step'"
    cdef uint32_t site      # the line that began the capture

    cdef str called(self)
    cdef int record(self, Stream stream, Event event) except -1
    cdef int admit(self, Stream stream) except -1
    cdef int wait(self, Stream stream, Event event) except -1
    cdef Stream user_of(self, unsigned int slot)


cdef class Stream:
    cdef Context context   # kept alive: the driver destroys streams with their context
    cdef str name          # the name in messages, or None
    cdef int priority      # lower numbers run first
    cdef own_stream *order          # the engine's record of the stream; NULL before `__init__`
    cdef CUstream raw
    cdef bint ours                  # closing destroys the handle
    cdef int exposed                # bits of `Exposed`: why the stream may be capturing
    cdef void *capture              # the Capturing that the stream is a part of, or NULL
    cdef unsigned long thread       # the only thread that may use the stream, or 0 for any
    cdef unsigned long long identity    # cuStreamGetId of a foreign stream, else 0
    cdef object owner               # keeps a foreign stream alive
    cdef uint64_t birth             # see _site.pyx; 0 for foreign streams
    cdef object __weakref__

    cdef int open(self, Context context, int order) except -1
    cdef str called(self)
    cdef int usable(self) except -1
    cdef int look_for_capture(self, bint pushed) noexcept nogil
    cdef int probe(self) noexcept nogil
    cdef bint finish(self, bint wait, int64_t deadline) except -1
    cdef bint _wait_long(self, own_snapshot *snapshot, int64_t deadline) except -1
    cdef int refuse(self, int reason) except -1
    cdef int refuse_captured(self) except -1
    cdef Event event_of_stream(self, Stream other)
    cdef int refuse_legacy(self) except -1
    cdef int refuse_outside(self, str work) except -1
    cdef Event record_event(self, Event event, own_snapshot *as_of=*)
    cdef int wait_for(self, Event event) except -1


cdef enum Exposed:
    HANDED_OUT = 1      # other libraries may have the handle, and may capture with it
    IN_CAPTURE = 2      # cudadrv captures the stream: see `capture`


cdef inline int check_stream(Stream stream) except -1:
    """Like `usable`, inlined for the fast path."""
    if unlikely(stream.order is NULL) or unlikely(
            (stream.order.state != OWN_OPEN) | (stream.thread != 0)
            # The body of `is_usable`, repeated here because a call would take a new reference to
            # the context.
            | stream.context.lost | cudadrv_table.attention):
        stream.usable()
    return 0


cdef inline bint names_context(Stream stream) noexcept nogil:
    """Whether a driver call on the stream needs no check of the current context or of captures.

    The driver finds the context by the handle, whatever context is current. Only if a call fails,
    the caller checks the current context, because that context may be the reason. The stream cannot
    be capturing, because no other library has its handle.
    """
    return stream.ours & (not stream.exposed)


cdef bint no_capture_goes_on(Stream stream) noexcept nogil


cdef inline bint takes_calls(Stream stream) noexcept:
    """Like `names_context`, but also for streams whose handle other libraries have: asks the driver
    whether they are capturing with it. False for default streams, which the driver does not find by
    their handles.
    """
    return likely(names_context(stream)) or (
        stream.exposed == HANDED_OUT and <size_t>stream.raw > 2 and no_capture_goes_on(stream))


cdef inline bint keeps_gil(Stream stream) noexcept:
    """Whether records, waits and queries on a stream keep the GIL.

    Releasing the GIL takes as long as one of these calls, and is useless if there is no other
    Python thread. A call that can block until a callback has taken the GIL must release the GIL.
    Records, waits and queries never block in this way: they need no space in the driver's queues,
    and succeed even if the queues are full (docs/benchmarks.md).
    """
    return is_only_thread(PyThreadState_Get()) and names_context(stream)


cdef inline int enter_stream(Stream stream, bint *pushed) noexcept nogil:
    """Make a stream's context current for a driver call. Returns 0, or a reason to refuse the call.

    The caller holds the stream's issue lock, and calls `leave_context` after 0.
    """
    cdef CUresult status
    if stream.order.state != OWN_OPEN:
        return STREAM_IS_CLOSED
    status = enter_context(stream.context.raw, pushed)
    if status == CUDA_SUCCESS and stream.exposed:
        return stream.look_for_capture(pushed[0])
    return status


cdef inline void tag_stream(Stream stream) noexcept:
    """Pass the engine's tag of a stream to the software driver.

    For a report of a data race, the driver asks by this tag which operation is being queued.
    """
    if unlikely(cudadrv_table.tag_stream is not NULL):
        cudadrv_table.tag_stream(stream.context.raw, stream.raw, own_tag(stream.order))


# Reasons why a driver call on a stream was not made. They are negative, unlike the statuses of the
# driver.
cdef enum:
    STREAM_IS_CLOSED = -2
    STREAM_IS_CAPTURING = -3
    EVENT_IS_CLOSED = -4
    EVENT_IS_CAPTURED = -5
    CAPTURE_HAS_ENDED = -6
    ISSUE_LOCK_IS_TAKEN = -7


# A call returns REFUSED minus the engine's answer if the engine refuses it. This is less than all
# statuses of the driver and all reasons above.
cdef enum:
    REFUSED = -100


# The type of functions that make the driver calls of one operation. Such a function sets *queued
# once the driver has accepted one of the calls. NULL stands for an operation without driver calls.
ctypedef CUresult (*driver_call)(
    void *arguments, CUstream stream, bint *queued) noexcept nogil


cdef Stream stream_for(object stream, Context context)
cdef Stream innermost_stream(Context context, Context other)
cdef int refuse_no_stream(str operation, str remark=*) except -1
cdef Stream legacy_stream(object device)
cdef Stream per_thread_stream(object device)
cdef Context context_for(Stream stream, object device)
cdef int wait_for_handle(Stream stream, size_t number) except -1
cdef Stream stream_from_handle(object handle, object owner, object named_by=*)
cdef Stream stream_from_object(object thing, str argument)


cdef inline object known_stream(object stream):
    """Convert a ``stream=`` argument to a Stream of cudadrv. None stays None.

    Must be called before all other checks: asking another library's stream for its handle runs that
    library's code, which may close objects that were checked before.
    """
    if likely(stream is None or isinstance(stream, Stream)):
        return stream
    return stream_from_object(stream, "stream")


ctypedef int (*wait_function)(Stream stream, Event event) except -1
cdef void wait_in_captures_with(wait_function function) noexcept
cdef object user_of(unsigned int slot, uint64_t seq)
cdef object find_user(unsigned int slot, uint64_t seq)
cdef bint may_synchronize(Context context) except -1
