"""Token: one queued operation, which a program can wait for.

State that outlives a call: tokens to which nobody refers any more, to be used again (the GIL guards
them).
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from cudadrv._capture cimport Capture, GraphNode, newest_node
from cudadrv._device cimport raise_failures
from cudadrv._driver cimport CU_EVENT_DISABLE_TIMING, unlikely
from cudadrv._engine cimport (
    OWN_READ, OWN_WRITE, engine, own_known, own_record_as, own_snapshot, own_snapshot_copy,
    own_snapshot_drop,
)
from cudadrv._errors cimport only_made_by
from cudadrv._event cimport FOREVER, Event, deadline_of, new_event, refuse_to_wait_longer
from cudadrv._names cimport operation_name
from cudadrv._site cimport place
from cudadrv._stream cimport check_stream

from cudadrv._errors import CaptureError, OwnershipError
from cudadrv._stream import find_events_of_tokens_with

cdef extern from "cudadrv/recycled.h":
    """
    #define CHECK_TOKEN_FIELDS() \
        _Static_assert(offsetof(struct __pyx_obj_7cudadrv_6_token_Token, asked) == \
                       offsetof(token_fields, asked), "recycled.h has other fields")
    """
    ctypedef struct PyTypeObject:
        void (*tp_dealloc)(PyObject *) noexcept
    int token_put_aside(token_store *store, PyObject *token) noexcept
    void CHECK_TOKEN_FIELDS()


@cython.final
@cython.freelist(8)
cdef class Knowledge:
    """The snapshot of a token whose stream had waited for other streams before the operation.

    Most tokens have no such object. It is separate from the token, so that deallocating the other
    tokens needs no extra work.
    """

    def __dealloc__(self):
        own_snapshot_drop(engine, &self.snapshot)


@cython.final
@cython.no_gc  # for speed; reference cycles are possible only through the `owner` of a buffer
cdef class Token:
    """Token(*args, **kwargs)\n--\n
    A queued operation: asynchronous methods return it.

    The token does not own the borrows: the buffers stay borrowed until the operation is known to be
    complete, even if the token is dropped. The token's event is recorded when it is first needed
    (`done`, `wait`, ``await``, ``stream.wait(token)``), after all work that is queued on the stream
    at that time. So `done` may stay False until all of that work is complete.

    Attributes
    ----------
    stream : Stream
    """

    @property
    def stream(self):
        """The stream that the operation was queued on."""
        return self.stream

    @property
    def reads(self):
        """The buffers that the operation reads, as a tuple. The token keeps them alive."""
        return _buffers_of(self, False)

    @property
    def writes(self):
        """The buffers that the operation writes, as a tuple. The token keeps them alive."""
        return _buffers_of(self, True)

    @property
    def site(self):
        """The line that queued the operation, such as ``"pipeline.py:41"``."""
        return place(self.site_number)

    @property
    def done(self):
        """Whether the operation is complete. Does not block.

        If it is True, the host may use what the operation used, as after `wait`. Raises what `wait`
        raises.
        Driver functions: cuEventQuery, and cuEventRecord the first time.
        """
        event = event_of(self)
        return event is None or event.done

    def wait(self, *, timeout=None):
        """Block until the operation is complete. Signals such as Ctrl-C interrupt the wait.

        From then on the host may use what the operation used, and also what was used by work that
        the operation was ordered after.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; 0 asks once. A wait that runs out of time changes nothing.

        Raises
        ------
        TimeoutError
            The operation is not complete after that time.
        ContextLostError
            An error has lost the context.
        TypeError, ValueError
            The timeout is negative or not a number, or the stream is the default stream of another
            thread.
        OwnershipError
            The stream is a default stream whose thread has ended, or the stream is capturing.

        Driver functions: cuEventQuery, and cuEventRecord the first time.
        """
        wait_for_token(self, timeout)
        raise_failures()

    def synchronize(self, *, timeout=None):
        """The same as `wait`: streams and events have a method of this name, too."""
        return self.wait(timeout=timeout)

    def _finish(self):
        """Like `wait`, but raises no exceptions of functions that streams have called."""
        wait_for_token(self, None)

    def __await__(self):
        """__await__($self, /)\n--\n
        ``await token`` waits without blocking the event loop. It has the same effect as `wait`."""
        yield from self._completion()
        raise_failures()

    def _completion(self):
        """Like `__await__`, but raises no exceptions of functions that streams have called."""
        event = event_of(self)
        if event is not None:
            yield from event._completion()

    def __repr__(self):
        if isinstance(self.asked, GraphNode):
            return f"<Token {_called(self)}, captured at {self.site}>"
        known = _is_known(self) and not self.stream.context.lost
        return f"<Token {_called(self)}, queued at {self.site}{', complete' if known else ''}>"


only_made_by(Token, "tokens come from asynchronous methods, such as copy_from_async")


cdef int wait_for_token(Token token, object timeout) except -1:
    """See `Token.wait`. Raises no exceptions of functions that streams have called."""
    cdef int64_t deadline = FOREVER if timeout is None else deadline_of(timeout)
    cdef Event event = event_of(token)
    if event is not None and not event.wait_until(deadline):
        refuse_to_wait_longer(f"{_called(token)}, queued at {token.site},", timeout)
    return 0


cdef str _called(Token token):
    """Return the names of the operation and its stream, for messages."""
    return f"{operation_name(token.operation)} on {token.stream.called()}"


cdef Event event_of(Token token):
    """Return the event of a token; None if the host knows that the operation is complete.

    The first call records the event.
    """
    token.stream.context.usable()
    if _is_known(token):
        return None if token.asked is None else _refuse_captured(token)
    if not isinstance(token.asked, Event):
        try:
            token.asked = _new_event_of(token)
        except ValueError:
            if not token.stream.closed:
                raise
            token.asked = _farewell(token)
    return token.asked


cdef Event _new_event_of(Token token):
    """Record an event now. In the engine the event stands only for the operation of the token."""
    cdef own_snapshot issued
    event = new_event(token.stream.context, CU_EVENT_DISABLE_TIMING)
    take_snapshot(token, &issued)
    try:
        return token.stream.record_event(event, &issued)
    finally:
        own_snapshot_drop(engine, &issued)


cdef void take_snapshot(Token token, own_snapshot *issued) noexcept:
    """Copy the snapshot that the token stands for. The caller drops the copy."""
    issued.clock, issued.seq, issued.slot = NULL, token.seq, token.slot
    if isinstance(token.asked, Knowledge):
        own_snapshot_copy(engine, &(<Knowledge>token.asked).snapshot, issued)


def _event_of_work(Stream stream not None, work):
    if not isinstance(work, Token):
        work = getattr(work, "token", None)  # a ResultToken has the token of its launch
    if not isinstance(work, Token):
        return NotImplemented
    if isinstance((<Token>work).asked, GraphNode):
        return _event_in_capture(stream, work)
    if unlikely(stream.context.captures) and not _is_known(<Token>work):
        if stream.capture is not NULL:
            stream.refuse_outside(_called(<Token>work))
        stream.refuse_legacy()
    return event_of(<Token>work)


find_events_of_tokens_with(_event_of_work)


cdef Event _event_in_capture(Stream stream, Token token):
    """Return an event for a stream that waits for a captured operation."""
    cdef GraphNode node = token.asked
    cdef Capture capture
    if node.capture is NULL or (<Capture>node.capture).ended:
        _refuse_captured(token)
    capture = <Capture>node.capture
    capture.admit(stream)
    check_stream(node.stream)
    return capture.event_after(node)


cdef Event _refuse_captured(Token token):
    """Raise if the token is of a captured operation; else return None."""
    if isinstance(token.asked, GraphNode):
        raise CaptureError(
            f"the token of {operation_name(token.operation)} at {token.site} is of an operation of"
            f" {(<GraphNode>token.asked).graph}, which ran nothing when it was captured. Wait for"
            " the token of a launch: graph.instantiate().launch(stream)")
    return None


cdef tuple _buffers_of(Token token, bint written):
    if callable(token.target):  # a launch's function, which finds buffers among its arguments
        return token.target(token.source, written)
    if token.modes[0]:
        mode = 1 + (OWN_WRITE if written else OWN_READ)
        found = []
        for i, buffer in enumerate((token.source, token.target)):
            if token.modes[i] == mode:
                found.append(buffer)
        return tuple(found)
    buffers = token.target if written else token.source
    if type(buffers) is tuple:
        return buffers
    return () if buffers is None else (buffers,)


cdef bint _is_known(Token token) noexcept:
    """Whether the host knows that the operation is complete. Does not ask the driver."""
    return own_known(engine, token.slot, token.seq)


cdef Event _farewell(Token token):
    """Return an event for a token of a closed stream.

    The event uses the handle of the stream's last event, which is a ghost. Returns None if the host
    knows that the operation is complete.
    """
    cdef Event ghost
    cdef own_snapshot issued
    cdef Event event = Event.__new__(Event)
    for ghost in token.stream.context.ghosts:
        if ghost.state.snapshot.slot == token.slot and ghost.state.snapshot.seq >= token.seq:
            event.context = ghost.context
            event.raw, event.lent, event.lender = ghost.raw, True, ghost
            take_snapshot(token, &issued)
            own_record_as(engine, &issued, &event.state)
            own_snapshot_drop(engine, &issued)
            return event
    if _is_known(token):  # another thread has waited for the work meanwhile, and dropped the ghost
        return None
    raise OwnershipError(
        "the stream of this operation has ended without an event to wait for, as the default stream"
        " of a thread does that ended; wait with context.synchronize()")


cdef Token first_token(Stream stream, object source, object target):
    """The slow path of `new_token`: allocate a token, because the store has none to use again."""
    cdef Token token = Token.__new__(Token)
    token.stream = stream
    token.source = source
    token.target = target
    return token


cdef void keep_knowledge(Token token, own_snapshot *issued) noexcept:
    """Let a token own a snapshot that has a clock.

    If memory runs out, the snapshot is dropped. A wait for the token then tells the host about the
    token's own stream only, and not about the streams that this stream had waited for.
    """
    cdef Knowledge knowledge
    if issued.seq == 0:  # the operation was captured
        own_snapshot_drop(engine, issued)
        token.asked = newest_node(token.source, token.target)
        return
    try:
        knowledge = Knowledge.__new__(Knowledge)
    except MemoryError:
        own_snapshot_drop(engine, issued)
    else:
        knowledge.snapshot = issued[0]
        token.asked = knowledge


# `_end_token` replaces the deallocator of Token. It puts the token into the store, from which
# `new_token` takes it for a later operation (recycled.h).
cdef token_store the_store
cdef void (*_ordinary_end)(PyObject *) noexcept


cdef void _end_token(PyObject *token) noexcept:
    if unlikely(not token_put_aside(&the_store, token)):
        _ordinary_end(token)


CHECK_TOKEN_FIELDS()
the_store.count = 0
ended_tokens = &the_store
_ordinary_end = (<PyTypeObject *>Token).tp_dealloc
(<PyTypeObject *>Token).tp_dealloc = _end_token
