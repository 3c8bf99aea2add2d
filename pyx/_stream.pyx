"""Stream: a queue of work, and the current one of a `with` block."""

import operator

cimport cython

from cudadrv._context cimport Context, after_wait, context_of, enter_context, leave_context
from cudadrv._driver cimport (
    CU_EVENT_DISABLE_TIMING, CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING, CUDA_SUCCESS, CUresult,
    bind_driver, cudadrv_table, cuStreamCreateWithPriority,
)
from cudadrv._event cimport Event, new_event
from cudadrv._ghost cimport bury_stream, make_room
from cudadrv._nesting cimport Entry, Nesting, live
from cudadrv._ownership cimport (
    OWN_BLOCKING, OWN_LEGACY, OWN_NON_BLOCKING, engine, own_stream_close,
)
from cudadrv._queue cimport STREAM_IS_CAPTURING, Queue, check_queue, tag_stream

from cudadrv._errors import OwnershipError

bind_driver(&cudadrv_table)

cdef Nesting _blocks = Nesting("cudadrv.stream")
_event_of_token = None  # what gives the event of a token to wait for, if it needs one


@cython.final
@cython.no_gc_clear
cdef class Stream(Queue):
    """Stream(*, blocking=False, priority=0, device=None)\n--\n
    A queue of work, which runs in order.

    Work of different streams is ordered by events (`record`, `wait`) and by nothing else, apart
    from the rules of the default streams. Inside ``with stream:`` it is the current stream of its
    context, for calls that name none.

    Parameters
    ----------
    blocking : bool, optional
        Whether it is ordered with the context's legacy default stream (CU_STREAM_DEFAULT). Streams
        are not (CU_STREAM_NON_BLOCKING) unless asked.
    priority : int, optional
        Lower numbers run first; see `Context.priority_range`.
    device : Device, optional
        Whose primary context it belongs to; default: the current one.

    Raises ValueError if the device has no such priority.

    Driver function: cuStreamCreateWithPriority.
    """

    def __init__(self, *, bint blocking=False, priority=0, device=None):
        cdef Context context = context_of(device)
        cdef unsigned int flags = CU_STREAM_DEFAULT if blocking else CU_STREAM_NON_BLOCKING
        cdef CUresult status
        cdef bint pushed = False
        wanted = operator.index(priority)
        if wanted:
            greatest, least = context.priority_range
            if not greatest <= wanted <= least:
                raise ValueError(f"priority {wanted} is not from {greatest} (first) to {least}")
        make_room(context)
        reference = context.streams.reference_to(self)
        # All that can run other code comes before: it may have initialized this one.
        if self.order is not NULL:
            raise TypeError("this Stream exists already")
        self.priority = wanted
        self.open(context, OWN_BLOCKING if blocking else OWN_NON_BLOCKING)
        with nogil:
            status = enter_context(context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuStreamCreateWithPriority(&self.raw, flags, self.priority)
                leave_context(pushed)
            context.check(status)
        self.ours = True
        tag_stream(self)
        context.streams.add(reference)

    @staticmethod
    def legacy(*, device=None):
        """The legacy default stream of a context (CU_STREAM_LEGACY).

        Work on it runs after all earlier work of the context's blocking streams, and their later
        work after it. Non-blocking streams are not ordered with it.
        """
        from cudadrv._foreign import legacy_stream
        return legacy_stream(device)

    @staticmethod
    def per_thread(*, device=None):
        """The default stream of this thread (CU_STREAM_PER_THREAD), a blocking stream.

        Each thread has its own. Using one, or a token of it, in another thread is a ValueError: the
        driver would take it for that thread's own. It ends with its thread: what is unfinished then
        stays borrowed until `Context.synchronize`, or until one waits for an event that the thread
        has recorded.
        """
        from cudadrv._foreign import per_thread_stream
        return per_thread_stream(device)

    @staticmethod
    def from_handle(handle, owner=None):
        """Use a stream of another library, by its CUstream as an int. It is never destroyed here.

        The same stream gives the same object while one is alive. Work that the other library
        queues on it is not seen: hand memory over with an event or a synchronization.

        Parameters
        ----------
        handle : int
            0 and 1 are the legacy default stream, 2 is this thread's default stream.
        owner : object, optional
            Kept alive with the result: the first that is given. The default streams need none.

        Raises ValueError if the stream is of a context that cudadrv does not know, or if its handle
        is that of a `Stream` that has died.

        Driver functions: cuStreamGetCtx, cuStreamGetId, cuStreamGetFlags, cuStreamGetPriority.
        """
        from cudadrv._foreign import stream_from_handle
        return stream_from_handle(handle, owner)

    @property
    def device(self):
        """The device of its context."""
        return None if self.context is None else self.context.device

    @property
    def blocking(self):
        """Whether it is ordered with the legacy default stream."""
        return self.order is not NULL and self.order.order != OWN_NON_BLOCKING

    @property
    def handle(self):
        """The CUstream, as an int, for other libraries. What they queue is not seen here."""
        self.usable()
        self.exposed = True
        return <size_t>self.raw

    def __int__(self):
        return self.handle

    def __cuda_stream__(self):
        """The protocol by which other libraries take a stream: ``(version, handle)``."""
        return 0, self.handle

    @property
    def done(self):
        """Whether all its work is complete; does not block.

        True counts as an observation, like `synchronize`.

        Driver function: cuStreamQuery.
        """
        return self.finish(wait=False)

    def synchronize(self):
        """Block until all work queued up to this call is complete.

        From then on the host may use what that work used. Signals such as Ctrl-C interrupt it.

        Driver functions: cuStreamQuery, for a short time; then cuEventRecord and cuEventQuery.
        """
        self.finish(wait=True)
        after_wait()

    def waitable(self):
        """An event recorded now, of the library's own."""
        self.usable()
        return self.record_event(new_event(self.context, CU_EVENT_DISABLE_TIMING))

    def record(self, Event event=None):
        """Record an event after the work queued so far; return it.

        Without one, a new event without timing is made. Does not block.

        Raises ValueError if the event is closed or of another context.

        Driver function: cuEventRecord.
        """
        if event is None:
            return self.waitable()
        if event.context is not self.context:
            raise ValueError(f"the event is of {event.context!r}, and {self!r} of another context")
        return self.record_event(event)

    def wait(self, work not None):
        """Let all later work of this stream run after something. Does not block the host.

        Parameters
        ----------
        work : Event, Token or Stream
            An event as it is recorded now; recording it again later changes nothing here. A token's
            operation. Another stream's work queued so far.

        Raises
        ------
        EventNotRecordedError
            The event was never recorded: the driver would not wait.
        OwnershipError
            Another library recorded the event in a capture: the stream would become a part of it.
        TypeError, ValueError
            It is something else; it is closed.

        Driver functions: cuStreamWaitEvent, and cuEventRecord for a token or a stream.
        """
        cdef Event event
        check_queue(self)
        if isinstance(work, Event):
            # Known or not: what other libraries queued before it the host cannot know.
            event = work
            event.refuse_unrecorded("waited for")
        elif isinstance(work, Stream):
            event = (<Stream>work).waitable()
        else:
            event = _event_of_token(work)
        if event is not None:
            self.wait_for(event)

    def close(self):
        """Destroy it without waiting; queued work still runs, and keeps its borrows.

        Closing twice does nothing. A default stream cannot be closed (ValueError), and closing a
        foreign one only ends its use here.

        Driver functions: cuEventRecord, cuStreamDestroy.
        """
        if self.closed:
            return
        if self.order.order == OWN_LEGACY or self.thread:
            raise ValueError("a default stream lives as long as its context; it cannot be closed")
        if self.context.lost:
            own_stream_close(engine, self.order)
            return
        self.usable()
        if self.order.loans:
            raise OwnershipError(f"{self!r} is not closed: buffers are lent to it; end their"
                                 " `with buffer.lend(...)` blocks first")
        if not bury_stream(self.context, self.raw, self.order, self.ours, self.identity):
            self.refuse(STREAM_IS_CAPTURING)

    def __enter__(self):
        """Make it the current stream of its context; see `ordering` about generators."""
        self.usable()
        _blocks.enter(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """End the block; the stream goes on."""
        _blocks.leave(self)

    def scope(self):
        """``with stream.scope():`` as ``with stream:``, and synchronize at the end.

        What the block has queued on it is complete after the block, also after one that ends by an
        exception; where waiting fails then, that exception gets a note. Gives the stream.

        Driver functions: as `synchronize`.
        """
        cdef Scope scope = Scope.__new__(Scope)
        self.usable()
        scope.stream = self
        return scope

    def bind(self, thing not None):
        """A thin wrapper of an object, whose methods are called with ``stream=`` this stream.

        Those that take no ``stream`` are called as they are, and a ``stream=`` of a call comes
        first. Other attributes can be read through it, and not be set.
        """
        from cudadrv._bound import Bound
        self.usable()
        return Bound(self, thing)

    def __repr__(self):
        if self.order is NULL:
            return "<Stream, never initialized>"
        closed = ", closed" if self.closed else ""
        return f"<{self.called()}{closed}, device {self.context.device.ordinal}>"


@cython.final
@cython.no_gc_clear
cdef class Scope:
    """Scope(*args, **kwargs)\n--\n
    A stream for the length of a `with` block: see `Stream.scope`.

    Written in Cython, because a signal can interrupt every line of Python.
    """

    cdef Stream stream
    cdef int entered    # blocks that have not ended

    def __init__(self, *args, **kwargs):
        raise TypeError("use stream.scope()")

    def __dealloc__(self):
        """A signal that comes before the block has begun leaves it to this."""
        while self.entered:
            self.entered -= 1
            try:
                _blocks.leave(self.stream)
            except Exception:  # it was entered in another thread or context
                pass

    def __enter__(self):
        """Make the stream the current one of its context."""
        if self.stream is None:
            raise TypeError("this Scope was never initialized")
        self.stream.usable()
        _blocks.enter(self.stream)
        self.entered += 1
        return self.stream

    def __exit__(self, kind, exception, traceback):
        """Wait for the work of the stream, and end the block."""
        if not self.entered:
            raise RuntimeError("this block is not entered, or has ended already")
        try:
            self.stream.synchronize()
        except Exception as error:
            if exception is None:
                raise
            exception.add_note(f"cudadrv: the work of {self.stream!r} may be unfinished: {error}")
        finally:
            self.entered -= 1
            _blocks.leave(self.stream)

    def __repr__(self):
        return f"<Scope of {self.stream!r}>"


def find_events_of_tokens_with(function):
    """Let `Stream.wait` take what this function takes, which are tokens."""
    global _event_of_token
    _event_of_token = function


cdef Stream stream_for(object stream, Context context):
    """The stream of a call: the argument, else the context's current one, else None."""
    cdef Entry block
    if stream is not None:
        if not isinstance(stream, Stream):
            raise TypeError(f"stream must be a Stream, not {type(stream).__name__}")
        return stream
    block = _blocks.innermost()
    while block is not None:
        if (<Stream>block.thing).context is context:
            return block.thing
        block = live(block.outer)
    return None
