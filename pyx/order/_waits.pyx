"""Waits: finds the work that a request conflicts with, so that its stream or the host can wait.

All work that conflicts is found before the first wait is inserted. If a part of it cannot be waited
for, the request is refused, and a refused request must not have inserted any wait.
"""

from cudadrv._engine cimport (
    OWN_MUST_WAIT, OWN_OK, engine, own_ask, own_ask_host, own_clock, own_clock_drop, own_clock_join,
    own_foresee, own_known, own_snapshot, own_snapshot_drop, own_snapshot_take,
)
from cudadrv._event cimport Event, refuse_behind, some_are_open
from cudadrv._stream cimport Capturing, Stream, user_of


cdef list missing_waits(Question *question):
    """Return the events to wait for, one for each stream whose work conflicts with a request.

    Returns an empty list if the caller only has to ask the engine again. Returns None if one of the
    streams cannot be waited for in this thread; the question's conflict then says which stream.
    Raises OwnershipError if one of the streams is capturing.
    """
    users = users_in_the_way(question)
    return users and _events_of(users)


cdef list users_in_the_way(Question *question):
    """Like `missing_waits`, but return what to wait for: Streams, or last Events of closed ones.

    Records no event.
    """
    cdef own_clock *waited = NULL
    cdef unsigned int slot
    cdef int answer = OWN_MUST_WAIT
    cdef own_snapshot nothing = own_snapshot(NULL, 0, 0)
    users = []
    own_clock_join(question.known, &nothing, &waited)   # another reference to the same clock
    try:
        while answer == OWN_MUST_WAIT:
            slot = question.conflict.epoch.slot
            if question.capture is not NULL:
                user = (<Capturing>question.capture).user_of(slot)
                if user is None:
                    return None
                users.append(user)
            else:
                user = user_of(slot, question.conflict.epoch.seq)
                if _can_be_waited_for(user):
                    users.append(user)
                elif isinstance(user, Stream) and (<Stream>user).closed:
                    continue  # the stream was closed; the next iteration finds its last event
                elif not own_known(engine, slot, question.conflict.epoch.seq):
                    return None
            if not own_foresee(question.engine, slot, &waited):
                raise MemoryError()
            with nogil:
                answer = _ask(question, waited)
    finally:
        own_clock_drop(waited)  # needs no engine's lock, because no other thread has this clock
    # If the answer is not OWN_OK, another thread has caused a conflict that no wait resolves.
    return users if answer == OWN_OK else []


cdef int _ask(Question *question, own_clock *waited) noexcept nogil:
    """Return the engine's answer, as if everything in the clock `waited` had been waited for."""
    if question.request is NULL:
        return own_ask_host(question.engine, question.access, waited, question.conflict)
    return own_ask(question.engine, question.request, question.runs, waited)


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
        if user is not None and some_are_open:
            refuse_behind(&(<Event>user).state.snapshot, (<Event>user).called(), NULL)
        return user is not None
    stream = user
    if some_are_open:
        _refuse_open(stream)
    try:
        stream.usable()
        with nogil:
            reason = stream.probe()
        if reason:
            stream.refuse(reason)
    except ValueError:  # the stream is another thread's default stream, or was closed meanwhile
        return False
    return True


cdef int _refuse_open(Stream stream) except -1:
    """Raise if the work of a stream is behind an open wait."""
    cdef own_snapshot now
    own_snapshot_take(engine, stream.order, &now)
    try:
        refuse_behind(&now, f"work of {stream.called()}", NULL)
    finally:
        own_snapshot_drop(engine, &now)
    return 0
