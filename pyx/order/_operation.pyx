"""Operation: the one way in which work reaches a stream.

An operation is checked, recorded and passed to the driver while the stream's issue lock is held. So
the driver gets the operations in the order that the engine has recorded. The GIL is released
meanwhile; in a program with one Python thread it is released only for the driver call (`issue`). If
an operation is refused, nothing was recorded and nothing was queued. An operation that makes no
driver call keeps the GIL, unless it has to wait for a lock or to look for a capture.

State that outlives a call: the functions of a profiler that name ranges (the GIL guards them).
"""

import atexit

from libc.stdint cimport uint64_t

from cudadrv._capture cimport Capture
from cudadrv._driver cimport (
    CUDADRV_ENDS, CUDADRV_HAS_RANGES, CUDADRV_TRACES, CUDA_SUCCESS, CUevent, CUresult, CUstream,
    cuEventRecord, cuStreamWaitEvent, cudadrv_table, enter_context, is_current, leave_context,
    likely, unlikely,
)
from cudadrv._engine cimport (
    OWN_MUST_WAIT, OWN_OK, engine, own_ask, own_begin, own_lock_both, own_mutex_take,
    own_mutex_try, own_runs, own_settle, own_snapshot_drop, own_undo,
)
from cudadrv._errors cimport is_sticky
from cudadrv._guard cimport guard_operation, guards
from cudadrv._names cimport operation_name
from cudadrv._site cimport place
from cudadrv._stream cimport (
    ISSUE_LOCK_IS_TAKEN, REFUSED, STREAM_IS_CAPTURING, Stream, check_stream, enter_stream,
    names_context,
)
from cudadrv._trace cimport trace_calls, trace_captured, trace_operation, trace_ticks
from cudadrv._waits cimport Question, missing_waits, users_in_the_way


# ---- operations ----

def _note_the_end():
    cudadrv_table.ending = True
    cudadrv_table.slowly |= CUDADRV_ENDS


# At exit, daemon threads may still run although their Python thread states no longer exist.
atexit.register(_note_the_end)


# Functions of a profiler, which begin and end a range of the calling thread; or None.
cdef object _push_range = None
cdef object _pop_range = None


cdef int name_ranges_with(object push, object pop) except -1:
    """Let each operation be a range, named by the operation and its line. None ends that."""
    global _push_range, _pop_range
    _push_range, _pop_range = push, pop
    if push is not None:
        cudadrv_table.slowly |= CUDADRV_HAS_RANGES
    else:
        cudadrv_table.slowly &= ~CUDADRV_HAS_RANGES
    return 0


cdef int issue_unusual(
    Operation *operation, Stream stream, own_runs *runs, bint apart
) except? -1:
    """The slow path of `issue`, which can issue every operation.

    Inserts the waits that the policy wants.
    """
    cdef Capture capture
    cdef Question question
    # Never 0 after an exception.
    cdef int reason = ISSUE_LOCK_IS_TAKEN
    # Others may begin or end ranges and traces meanwhile.
    cdef object pop = _pop_range
    cdef uint64_t begun = 0     # not 0 in a trace
    cdef bint captured = False
    works = None
    check_stream(stream)
    operation.request.stream = stream.order
    if unlikely(cudadrv_table.slowly & CUDADRV_TRACES):
        trace_calls.name_request(&operation.request, stream.order, <size_t>stream.raw)
        begun = trace_ticks()
    if unlikely(_push_range is not None):
        _push_range(f"{operation_name(operation.request.operation)} at"
                    f" {place(operation.request.site)}")
    try:
        while True:
            reason = ISSUE_LOCK_IS_TAKEN
            if _keeps_gil(operation, stream):
                reason = attempt(operation, stream, runs, apart, False)
            if reason == ISSUE_LOCK_IS_TAKEN:
                with nogil:
                    reason = attempt(operation, stream, runs, apart, True)
            if unlikely(reason == STREAM_IS_CAPTURING) and stream.capture is not NULL \
                    and runs is NULL:
                capture = <Capture>stream.capture
                reason = capture.issue(
                    stream, &operation.request, operation.call, operation.arguments)
                captured = True
                if unlikely(cudadrv_table.slowly & CUDADRV_TRACES):
                    trace_captured()
                break
            if likely(reason != REFUSED - OWN_MUST_WAIT):
                # After a sticky error, destroying the events in `works` fails, too. The exception
                # is made while they are alive, because later it would name cuEventDestroy as the
                # failed call.
                if unlikely(works is not None) and reason > 0 and is_sticky(<CUresult>reason):
                    stream.context.check(<CUresult>reason)
                break
            question = _question(operation, runs)
            works = missing_waits(&question)
            if works is None:
                break
            for work in works:
                stream.wait(work)
    finally:
        if unlikely(guards()) and reason == 0 and not captured:
            guard_operation(&operation.request)
        if unlikely(begun):
            trace_operation(&operation.request, begun, reason)
        if unlikely(pop is not None):
            pop()
    return reason


cdef bint _keeps_gil(Operation *operation, Stream stream) noexcept:
    """Whether an operation keeps the GIL if its issue lock is free, because it never blocks.

    With other Python threads, only operations without any driver call keep it.
    """
    if operation.call is NULL:
        return not stream.exposed or is_alone(operation.thread)
    return operation.call == record_call and is_alone(operation.thread)


cdef CUresult record_call(void *event, CUstream stream, bint *queued) noexcept nogil:
    """Record an event on the stream, and let the stream wait for it. Never blocks (`keeps_gil`)."""
    cdef CUresult status = cuEventRecord(<CUevent>event, stream)
    if status == CUDA_SUCCESS:
        status = cuStreamWaitEvent(stream, <CUevent>event, 0)
    return status


cdef int attempt(
    Operation *operation, Stream stream, own_runs *runs, bint apart, bint waits
) except? -1 nogil:
    """Check an operation and pass it to the driver. Unlike `issue`, inserts no waits.

    Returns what `issue` returns. If `waits` is false, and another thread has the stream's issue
    lock, does nothing and returns ISSUE_LOCK_IS_TAKEN; `runs` must then be NULL. The caller has set
    `request.stream`, and checked that the stream is usable.
    """
    cdef bint pushed = False
    cdef bint queued = False
    cdef bint direct
    cdef int reason = 0
    cdef int answer
    if runs is not NULL:
        own_lock_both(stream.order.issue, &runs.last.issue)
    elif waits:
        own_mutex_take(stream.order.issue)
    elif not own_mutex_try(stream.order.issue):
        return ISSUE_LOCK_IS_TAKEN
    direct = names_context(stream) | ((operation.call is NULL) & (not stream.exposed))
    if unlikely(not direct):
        reason = enter_stream(stream, &pushed)
    if likely(reason == 0):
        answer = own_begin(engine, &operation.request, runs, apart, False)
        if likely(answer == OWN_OK):
            if operation.call is not NULL:
                reason = operation.call(operation.arguments, stream.raw, &queued)
            if likely(reason == CUDA_SUCCESS):
                own_settle(engine, &operation.request, runs, False)
            else:
                reason = after_failure(
                    operation, stream, <CUresult>reason, direct and not queued, queued, runs)
        else:
            reason = REFUSED - answer
        leave_context(pushed)
    give_issue_locks(stream, runs)
    return reason


cdef int after_failure(
    Operation *operation, Stream stream, CUresult status, bint again, bint queued, own_runs *runs
) noexcept nogil:
    """Settle or undo an operation whose driver call failed; return the driver's final status.

    `again` is true if the call was made in whatever context was current. If that was not the
    stream's context, it may be the reason for the failure. So the call is then repeated in the
    stream's context.
    """
    cdef bint pushed = False
    if again and not is_current(stream.context.raw):
        status = enter_context(stream.context.raw, &pushed)
        if status == CUDA_SUCCESS:
            status = operation.call(operation.arguments, stream.raw, &queued)
    if status == CUDA_SUCCESS:
        own_settle(engine, &operation.request, runs, False)
    elif queued:  # a part of the operation is queued, but no token takes over its snapshot
        own_settle(engine, &operation.request, NULL, False)
        own_snapshot_drop(engine, &operation.request.issued)
    else:
        own_undo(engine, &operation.request)
    leave_context(pushed)
    return status


cdef int ask(Operation *operation, Stream stream) except? -1:
    """Return 0 if `issue` would grant the borrows now, else a reason. Queues nothing.

    Called before costly preparations. Returns 0 also for conflicts that the policy "wait" resolves.
    """
    cdef Question question
    stream.usable()
    if stream.capture is not NULL:
        stream.refuse_captured()
    operation.request.stream = stream.order
    answer = own_ask(engine, &operation.request, NULL, NULL)
    if answer == OWN_MUST_WAIT:
        question = _question(operation, NULL)
        if users_in_the_way(&question) is not None:
            return 0
    return 0 if answer == OWN_OK else REFUSED - answer


cdef Question _question(Operation *operation, own_runs *runs) noexcept:
    return Question(engine, &operation.request.conflict, &operation.request, runs, NULL, NULL, NULL)
