"""Token: one operation that was queued, for those who want to wait for it alone."""

cimport cython

from cudadrv._driver cimport CU_EVENT_DISABLE_TIMING
from cudadrv._event cimport Event, Waitable, new_event
from cudadrv._operation_names cimport operation_name, stream_name
from cudadrv._ownership cimport engine, own_known, own_record_as, own_snapshot_drop
from cudadrv._site cimport place


@cython.final
@cython.no_gc_clear
cdef class Token(Waitable):
    """A queued operation: what asynchronous methods return.

    It is a view of the borrows, not their owner: dropping it releases nothing and leaks nothing, and
    the buffers stay borrowed until the operation is known to be complete. It has no event of its own
    until it is first asked (`done`, `wait`, ``await``, ``stream.wait(token)``), and is then complete
    no later than the work queued on its stream by that time.

    Attributes
    ----------
    stream : Stream
    reads, writes : tuple
        The buffers that the operation reads and writes. The token keeps them alive.
    """

    def __init__(self):
        raise TypeError("tokens come from asynchronous methods, such as copy_from_async")

    def __dealloc__(self):
        own_snapshot_drop(engine, &self.snapshot)

    @property
    def site(self):
        """The line that queued the operation, such as ``"pipeline.py:41"``."""
        return place(self.site_number)

    @property
    def done(self):
        """Whether the operation is complete; does not block.

        True counts as an observation, like `wait`.

        Driver functions: cuEventQuery, and cuEventRecord the first time.
        """
        return self.is_known() or self.event_of().done

    def wait(self):
        """Block until the operation is complete. Signals such as Ctrl-C interrupt it.

        From then on the host knows that it, and what was ordered before it, is complete.

        Driver functions: cuEventQuery, and cuEventRecord the first time.
        """
        if not self.is_known():
            self.event_of().synchronize()

    def __await__(self):
        """``await token`` waits without blocking the event loop; it is `wait` when it resumes."""
        from cudadrv._await import completion
        if not self.done:
            yield from completion(self).__await__()
            self.wait()

    def __repr__(self):
        stream = stream_name(self.stream.order.number, self.stream.order.order)
        state = "complete" if self.is_known() else "queued"
        return f"<Token {operation_name(self.operation)} on {stream}, {state} at {self.site}>"

    cdef bint is_known(self) except -1:
        self.stream.context.usable()
        return own_known(engine, self.snapshot.slot, self.snapshot.seq)

    cdef Event event_of(self):
        if self.event is None:
            if self.stream.closed:
                self.event = self._farewell()
            else:
                event = new_event(self.stream.context, CU_EVENT_DISABLE_TIMING)
                self.event = self.stream.record_event(event, &self.snapshot)
        return self.event

    def _farewell(self):
        """The last event of our closed stream, standing for this operation alone."""
        cdef Event ghost
        cdef Event event = Event.__new__(Event)
        for ghost in self.stream.context.ghosts:
            if ghost.state.snapshot.slot == self.snapshot.slot \
                    and ghost.state.snapshot.seq >= self.snapshot.seq:
                event.context = ghost.context
                event.raw, event.lent, event.lender = ghost.raw, True, ghost
                own_record_as(engine, &self.snapshot, &event.state)
                return event
        raise AssertionError("a closed stream with unfinished work has no last event")


cdef Token new_token(Operation *operation, Stream stream, tuple reads, tuple writes):
    """The token of an operation that was issued; takes over its snapshot."""
    cdef Token token = Token.__new__(Token)
    token.stream = stream
    token.reads = reads
    token.writes = writes
    token.snapshot = operation.request.issued
    token.site_number = operation.request.site
    token.operation = operation.request.operation
    return token
