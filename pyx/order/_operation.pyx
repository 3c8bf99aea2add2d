"""Operation: the one way in which work reaches a stream.

An operation is checked, recorded and passed to the driver while the stream's issue lock is held. So
the driver gets the operations in the order that the engine has recorded. The GIL is released
meanwhile; in a program with one Python thread it is released only for the driver call (`issue`). If
an operation is refused, nothing was recorded and nothing was queued. `note` is for operations that
make no driver call. It keeps the GIL, unless it has to wait for a lock or to look for a capture.
"""

import atexit

from cudadrv._capture cimport Capture
from cudadrv._driver cimport (
    CUDA_SUCCESS, CUresult, cudadrv_table, enter_context, is_current, leave_context, likely,
    unlikely,
)
from cudadrv._engine cimport (
    OWN_MUST_WAIT, OWN_NO_MEMORY, OWN_OK, engine, own_ask, own_begin, own_begin_alone,
    own_begin_run, own_clock, own_clock_drop, own_conflict, own_foresee, own_known,
    own_lock_both, own_mutex_give, own_mutex_take, own_mutex_try, own_record_as, own_request,
    own_runs, own_settle, own_settle_alone, own_snapshot, own_snapshot_drop, own_undo,
)
from cudadrv._errors cimport is_sticky
from cudadrv._event cimport Event
from cudadrv._stream cimport (
    REFUSED, STREAM_IS_CAPTURING, Stream, check_stream, enter_stream, names_context, user_of,
)


# ---- operations ----

def _note_the_end():
    cudadrv_table.ending = True


# Daemon threads may still run when their Python thread states no longer exist.
atexit.register(_note_the_end)


cdef int issue_unusual(
    Operation *operation, Stream stream, own_runs *runs, bint apart
) except? -1:
    """The slow path of `issue` and `issue_run`, which can issue every operation.

    Inserts the waits that the policy wants. The caller has set `request.stream`.
    """
    cdef Capture capture
    cdef Asked asked
    cdef int reason
    works = None
    while True:
        with nogil:
            reason = _attempt(operation, stream, runs, apart)
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
        asked.before = NULL if runs is NULL else &runs.last.snapshot
        works = missing_waits(&operation.request.conflict, _still_in_the_way, &asked)
        if works is None:
            return reason
        for work in works:
            stream.wait(work)


cdef int after_failure(
    Operation *operation, Stream stream, CUresult status, bint queued, own_runs *runs
) except? -1:
    """Handle a failed driver call of the fast path, and return what `issue_run` has to return.

    The engine has recorded the operation. The caller has taken the issue locks.
    """
    cdef bint pushed = False
    cdef int reason
    with nogil:
        reason = _after_failure(operation, stream, status, not queued, queued, &pushed)
        leave_context(pushed)
    if runs is not NULL and reason == CUDA_SUCCESS:
        own_record_as(engine, &operation.request.issued, &runs.last)
    give_issue_locks(stream, runs)
    return reason


cdef int note(Operation *operation, Stream stream) except? -1:
    """As `issue`, for an operation that makes no driver call."""
    cdef int answer = OWN_NO_MEMORY
    check_stream(stream)
    operation.request.stream = stream.order
    if is_alone(operation.thread) and not stream.exposed \
            and own_begin_alone(engine, &operation.request, False):
        own_settle_alone(engine, &operation.request)
        own_mutex_give(stream.order.issue)
        return 0
    if not stream.exposed and own_mutex_try(stream.order.issue):
        answer = own_begin(engine, &operation.request)
        if answer == OWN_OK:
            own_settle(engine, &operation.request)
        own_mutex_give(stream.order.issue)
    return 0 if answer == OWN_OK else issue(operation, stream)


cdef int issue_briefly(Operation *operation, Stream stream) except? -1:
    """As `issue`, for an operation that makes no driver call, or only records and waits for events.

    Such calls never block (`keeps_gil`). So the GIL is kept if there is no other Python thread,
    even if another library has the stream. In that case `note` does not keep the GIL.
    """
    cdef int reason
    check_stream(stream)
    operation.request.stream = stream.order
    if likely(is_alone(operation.thread)):
        reason = attempt(operation, stream)
        if likely(reason not in (STREAM_IS_CAPTURING, REFUSED - OWN_MUST_WAIT)):
            return reason
    return issue_unusual(operation, stream, NULL, False)


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
        asked.request, asked.before = &operation.request, NULL
        if _in_the_way(&operation.request.conflict, _still_in_the_way, &asked) is not None:
            return 0
    return 0 if answer == OWN_OK else REFUSED - answer


cdef struct Asked:
    own_request *request
    const own_snapshot *before  # the argument `before` of own_ask, or NULL


cdef int _still_in_the_way(void *asked, own_clock *waited) noexcept nogil:
    return own_ask(engine, (<Asked *>asked).request, (<Asked *>asked).before, waited)


cdef int attempt(Operation *operation, Stream stream) except? -1 nogil:
    """Check an operation and pass it to the driver. Inserts no waits, unlike `issue`.

    Returns what `issue` returns. The caller has set `request.stream`, and checked that the stream
    is usable.
    """
    return _attempt(operation, stream, NULL, False)


cdef inline int _attempt(
    Operation *operation, Stream stream, own_runs *runs, bint apart
) except? -1 nogil:
    """Do what `attempt` does; if `runs` is not NULL, what `issue_run` does."""
    cdef bint pushed = False
    cdef bint queued = False
    cdef bint direct
    cdef int reason = 0
    cdef int answer
    if runs is NULL:
        own_mutex_take(stream.order.issue)
    else:
        own_lock_both(stream.order.issue, &runs.last.issue)
    direct = names_context(stream)
    if unlikely(not direct):
        reason = enter_stream(stream, &pushed)
    if likely(reason == 0):
        answer = own_begin(engine, &operation.request) if runs is NULL \
            else own_begin_run(engine, &operation.request, runs, apart)
        if likely(answer == OWN_OK):
            reason = operation.call(operation.arguments, stream.raw, &queued)
            if likely(reason == CUDA_SUCCESS):
                own_settle(engine, &operation.request)
            else:
                reason = _after_failure(
                    operation, stream, <CUresult>reason, direct and not queued, queued, &pushed)
            if runs is not NULL and reason == CUDA_SUCCESS:
                own_record_as(engine, &operation.request.issued, &runs.last)
        else:
            reason = REFUSED - answer
        leave_context(pushed)
    give_issue_locks(stream, runs)
    return reason


cdef int _after_failure(
    Operation *operation, Stream stream, CUresult status, bint again, bint queued, bint *pushed
) noexcept nogil:
    """Settle or undo an operation whose driver call failed; return the driver's final status.

    `again` is true if the call was made in whatever context was current. If that was not the
    stream's context, it may be the reason for the failure. So the call is then repeated in the
    stream's context.
    """
    if again and not is_current(stream.context.raw):
        status = enter_context(stream.context.raw, pushed)
        if status == CUDA_SUCCESS:
            status = operation.call(operation.arguments, stream.raw, &queued)
    if status == CUDA_SUCCESS or queued:
        own_settle(engine, &operation.request)
        if status != CUDA_SUCCESS:  # it is partly queued, but no token takes over its snapshot
            own_snapshot_drop(engine, &operation.request.issued)
    else:
        own_undo(engine, &operation.request)
    return status


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
