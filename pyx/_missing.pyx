"""Missing waits: what the policy ``"wait"`` inserts before a request that is not yet ordered.

All that is in the way is found before anything is inserted: where one of the users cannot be waited
for, the request is refused, and then nothing may have changed.
"""

from cudadrv._event cimport Event
from cudadrv._foreign cimport user_of
from cudadrv._ownership cimport (
    OWN_MUST_WAIT, OWN_OK, engine, own_clock, own_clock_drop, own_conflict, own_foresee,
    own_known,
)
from cudadrv._stream cimport Stream


cdef list missing_waits(own_conflict *conflict, question still_in_the_way, void *request):
    """The events to wait for, one for each stream in the way; none if asking again is enough.

    None if one of the streams cannot be waited for in this thread; `conflict` then tells which.
    Raises OwnershipError if one is capturing.
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
                continue  # since we looked: then there is a last event to be found
            elif not own_known(engine, conflict.epoch.slot, conflict.epoch.seq):
                return None
            if not own_foresee(engine, conflict.epoch.slot, &waited):
                raise MemoryError()
            with nogil:
                answer = still_in_the_way(request, waited)
    finally:
        own_clock_drop(waited)  # nobody else has it, so without the engine's lock
    if answer != OWN_OK:  # another thread has made it one that no waiting helps
        return []
    return _events_of(users)


cdef list _events_of(list users):
    """Events after all work of these; none if a stream among them was closed since we looked."""
    events = []
    try:
        for user in users:
            events.append(user if isinstance(user, Event) else (<Stream>user).waitable())
    except ValueError:
        return []
    return events


cdef bint _can_be_waited_for(user) except -1:
    """Whether an event can stand for the work of a stream now; that of a closed one has one."""
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
    except ValueError:  # the default stream of another thread; or closed meanwhile
        return False
    return True
