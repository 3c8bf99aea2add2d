"""Operation: the one way in which work reaches a stream.

An operation is checked, recorded and passed to the driver while the stream's issue lock is held. So
the driver gets the operations in the order that the engine has recorded. The GIL is released
meanwhile; in a program with one Python thread it is released only for the driver call (`issue`). If
an operation is refused, nothing was recorded and nothing was queued. An operation that makes no
driver call keeps the GIL, unless it has to wait for a lock or to look for a capture.
"""

import atexit

from cudadrv._capture cimport Capture
from cudadrv._driver cimport (
    CUDA_SUCCESS, CUevent, CUresult, CUstream, cuEventRecord, cuStreamWaitEvent, cudadrv_table,
    enter_context, is_current, leave_context, likely, unlikely,
)
from cudadrv._engine cimport (
    OWN_MUST_WAIT, OWN_OK, engine, own_ask, own_begin, own_clock, own_clock_drop, own_conflict,
    own_foresee, own_known, own_lock_both, own_mutex_take, own_mutex_try, own_request, own_runs,
    own_settle, own_snapshot_drop, own_undo,
)
from cudadrv._errors cimport is_sticky
from cudadrv._event cimport Event
from cudadrv._stream cimport (
    ISSUE_LOCK_IS_TAKEN, REFUSED, STREAM_IS_CAPTURING, Stream, check_stream, enter_stream,
    names_context, user_of,
)


# ---- operations ----

def _note_the_end():
    cudadrv_table.ending = True


# Daemon threads may still run when their Python thread states no longer exist.
atexit.register(_note_the_end)


cdef int issue_unusual(
    Operation *operation, Stream stream, own_runs *runs, bint apart
) except? -1:
    """The slow path of `issue`, which can issue every operation.

    Inserts the waits that the policy wants.
    """
    cdef Capture capture
    cdef Asked asked
    cdef int reason
    works = None
    check_stream(stream)
    operation.request.stream = stream.order
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
            return capture.issue(stream, &operation.request, operation.call, operation.arguments)
        if likely(reason != REFUSED - OWN_MUST_WAIT):
            # After a sticky error, destroying the events in `works` fails, too. The exception is
            # made while they are alive, because later it would name cuEventDestroy as the failed
            # call.
            if unlikely(works is not None) and reason > 0 and is_sticky(<CUresult>reason):
                stream.context.check(<CUresult>reason)
            return reason
        asked.request = &operation.request
        asked.runs = runs
        works = missing_waits(&operation.request.conflict, _still_in_the_way, &asked)
        if works is None:
            return reason
        for work in works:
            stream.wait(work)


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
    elif queued:  # it is partly queued, but no token takes over its snapshot
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
    cdef Asked asked
    stream.usable()
    if stream.capture is not NULL:
        stream.refuse_captured()
    operation.request.stream = stream.order
    answer = own_ask(engine, &operation.request, NULL, NULL)
    if answer == OWN_MUST_WAIT:
        asked.request, asked.runs = &operation.request, NULL
        if _in_the_way(&operation.request.conflict, _still_in_the_way, &asked) is not None:
            return 0
    return 0 if answer == OWN_OK else REFUSED - answer


cdef struct Asked:
    own_request *request
    const own_runs *runs    # as for own_ask


cdef int _still_in_the_way(void *asked, own_clock *waited) noexcept nogil:
    return own_ask(engine, (<Asked *>asked).request, (<Asked *>asked).runs, waited)


# ---- what the policy "wait" inserts ----
#
# All streams whose work conflicts are found before the first wait is inserted. If one of these
# streams cannot be waited for, the request is refused, and a refused request must not have inserted
# any wait.

cdef list missing_waits(own_conflict *conflict, question still_in_the_way, void *request):
    """Return the events to wait for, one for each stream whose work conflicts with a request.

    Returns an empty list if the caller only has to ask the engine again. Returns None if one of the
    streams cannot be waited for in this thread; `conflict` then says which stream. Raises
    OwnershipError if one of the streams is capturing.
    """
    users = _in_the_way(conflict, still_in_the_way, request)
    return users and _events_of(users)


cdef list _in_the_way(own_conflict *conflict, question still_in_the_way, void *request):
    """As `missing_waits`, but return what to wait for: a Stream, or the last Event of a closed one.

    Records no event.
    """
    cdef own_clock *waited = NULL
    cdef int answer = OWN_MUST_WAIT
    users = []
    try:
        while answer == OWN_MUST_WAIT:
            user = user_of(conflict.epoch.slot, conflict.epoch.seq)
            if _can_be_waited_for(user):
                users.append(user)
            elif isinstance(user, Stream) and (<Stream>user).closed:
                continue  # closed after `user_of` found it; the next turn finds its last event
            elif not own_known(engine, conflict.epoch.slot, conflict.epoch.seq):
                return None
            if not own_foresee(engine, conflict.epoch.slot, &waited):
                raise MemoryError()
            with nogil:
                answer = still_in_the_way(request, waited)
    finally:
        own_clock_drop(waited)  # needs no engine's lock, because no other thread has this clock
    # With another answer, another thread has caused a conflict meanwhile that no wait resolves.
    return users if answer == OWN_OK else []


cdef list _events_of(list users):
    """Return an event for each user. The user is a Stream, or the last Event of a closed stream.

    For a Stream, a new event is recorded after all its work. Returns an empty list if a stream was
    closed meanwhile; the caller then asks the engine again.
    """
    events = []
    try:
        for user in users:
            events.append(user if isinstance(user, Event) else (<Stream>user).waitable())
    except ValueError:
        return []
    return events


cdef bint _can_be_waited_for(user) except -1:
    """Whether an event can stand for a user now.

    The user is the last Event of a closed stream, a Stream, or None.
    """
    cdef Stream stream
    cdef int reason
    if user is None or isinstance(user, Event):
        return user is not None
    stream = user
    try:
        stream.usable()
        with nogil:
            reason = stream.probe()
        if reason:
            stream.refuse(reason)
    except ValueError:  # the stream is another thread's default stream, or was closed meanwhile
        return False
    return True
