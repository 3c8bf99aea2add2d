"""Streams that exist without us, or are named by something else than their object."""

import operator
import threading

cimport cython
from libc.stdint cimport uint64_t

from cudadrv._context cimport Alive, Context, context_of, contexts, default_context
from cudadrv._driver cimport (
    CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_LEGACY, CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD,
    CUcontext, CUDA_SUCCESS, CUresult, CUstream, CUstreamCaptureStatus, bind_driver, cudadrv_table,
    cuStreamGetCtx, cuStreamGetFlags, cuStreamGetId, cuStreamGetPriority, cuStreamIsCapturing,
)
from cudadrv._errors cimport check, refuse_capture
from cudadrv._event cimport Event
from cudadrv._ghost cimport bury_orphans, is_dead, is_dying, make_room, this_thread
from cudadrv._ownership cimport (
    OWN_BLOCKING, OWN_LEGACY, OWN_NON_BLOCKING, OWN_PER_THREAD, engine, own_join, own_known,
    own_stream_close, own_unfinished,
)
from cudadrv._queue cimport STREAM_IS_CLOSED, tag_stream
from cudadrv._stream cimport Stream
from cudadrv._wait cimport let_others_go_on

bind_driver(&cudadrv_table)

cdef enum:
    MOST_ENDED = 256    # streams of ended threads whose work nobody has waited for

_per_thread = threading.local()


@cython.final
cdef class ThreadEnd:
    """Ends a thread's default streams. It dies in the thread, as one of the last things there.

    Recording events then could block, so there are none to wait for: the streams just end.
    """

    cdef unsigned long thread

    def __cinit__(self):
        self.thread = this_thread()

    def __dealloc__(self):
        cdef Stream stream
        for context in contexts():
            stream = (<Context>context).defaults.pop(self.thread, None)
            if stream is not None:
                own_stream_close(engine, stream.order)


# One stream, one object, whatever other threads and finalizers do meanwhile. So all that can let
# them in, which is all that makes Python objects, comes first; then one looks whether there is an
# object for the stream by now, and opens the new one.

def legacy_stream(device):
    """See `Stream.legacy`."""
    cdef Context context = context_of(device)
    cdef Stream stream
    if "legacy" not in context.defaults:
        stream = _unopened(context, CU_STREAM_LEGACY)
        reference = context.streams.reference_to(stream)
        if "legacy" not in context.defaults:
            _open(stream, reference, OWN_LEGACY)
            context.defaults["legacy"] = stream
    return context.defaults["legacy"]


def per_thread_stream(device):
    """See `Stream.per_thread`."""
    cdef Context context = context_of(device)
    cdef Stream stream
    thread = this_thread()
    if thread not in context.defaults:
        if not hasattr(_per_thread, "end"):
            _per_thread.end = ThreadEnd()
        _make_room_for_threads(context)
        stream = _unopened(context, CU_STREAM_PER_THREAD)
        stream.thread = thread
        reference = context.streams.reference_to(stream)
        if thread not in context.defaults:
            _open(stream, reference, OWN_BLOCKING)
            stream.order.kind = OWN_PER_THREAD
            context.defaults[thread] = stream
    return context.defaults[thread]


cdef int _make_room_for_threads(Context context) except -1:
    """Keep the number of ended threads' streams with unfinished work bounded, by waiting."""
    make_room(context)
    if own_unfinished(engine, context.domain) > len(context.ghosts) + MOST_ENDED \
            and may_synchronize(context):
        context.synchronize()
    return 0


cdef Stream _unopened(Context context, CUstream handle):
    """A stream that is not ours to destroy, and that the engine does not know yet."""
    cdef Stream stream = Stream.__new__(Stream)
    context.usable()
    stream.context = context
    stream.raw = handle
    stream.exposed = True
    return stream


cdef int _open(Stream stream, object reference, int order) except -1:
    """Let everybody know it. Lets no other thread in."""
    stream.open(stream.context, order)
    tag_stream(stream)
    return stream.context.streams.add(reference)


def stream_from_handle(handle, owner):
    """See `Stream.from_handle`."""
    cdef size_t number = operator.index(handle)
    cdef CUstream raw = <CUstream>number
    cdef Context context = default_context()
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef unsigned long long identity = 0
    cdef unsigned int flags = 0
    cdef int priority = 0
    cdef CUcontext found = NULL
    cdef Stream stream
    if number <= 1:
        return legacy_stream(None)
    if number == 2:
        return per_thread_stream(None)
    context.usable()
    if is_dead(raw):
        raise ValueError(f"the stream with the handle {number:#x} was a Stream that has died, and"
                         " is destroyed with it; keep that alive for as long as the handle is used")
    with nogil:
        check(_describe(raw, &capture, &found, &identity, &flags, &priority))
    if capture != CU_STREAM_CAPTURE_STATUS_NONE:
        refuse_capture(f"the stream with the handle {number:#x}")
    context = _context_of_raw(found)
    make_room(context)
    stream = _unopened(context, raw)
    stream.identity = identity
    stream.priority = priority
    stream = _known_or_opened(
        stream, OWN_NON_BLOCKING if flags & CU_STREAM_NON_BLOCKING else OWN_BLOCKING)
    if stream.owner is None:
        stream.owner = owner
    return stream


cdef CUresult _describe(
    CUstream handle, CUstreamCaptureStatus *capture, CUcontext *context,
    unsigned long long *identity, unsigned int *flags, int *priority
) noexcept nogil:
    """Look a stream up; nothing but `capture` while it captures, or the driver would end that."""
    cdef CUresult status = cuStreamIsCapturing(handle, capture)
    if status != CUDA_SUCCESS or capture[0] != CU_STREAM_CAPTURE_STATUS_NONE:
        return status
    status = cuStreamGetCtx(handle, context)
    if status == CUDA_SUCCESS:
        status = cuStreamGetId(handle, identity)
    if status == CUDA_SUCCESS:
        status = cuStreamGetFlags(handle, flags)
    if status == CUDA_SUCCESS:
        status = cuStreamGetPriority(handle, priority)
    return status


cdef Context _context_of_raw(CUcontext raw):
    for context in contexts():
        if (<Context>context).raw == raw:
            return context
    raise ValueError("the stream is of a context that cudadrv does not know; if that is a device's"
                     " primary context, use it first: device.context")


cdef Stream _known_or_opened(Stream stream, int order):
    """The live object of the same stream, or else this one, opened."""
    cdef Alive streams = stream.context.streams
    cdef Stream known
    reference = streams.reference_to(stream)
    while True:
        added = streams.added
        known = _known_stream(stream)
        if known is not None:
            return known
        if added == streams.added:
            _open(stream, reference, order)
            _follow_itself(stream)
            return stream


cdef int _follow_itself(Stream stream) except -1:
    """Be after what the same stream did under earlier objects. Lets no other thread in."""
    cdef Event ghost
    for ghost in stream.context.ghosts:
        if ghost.identity == stream.identity and ghost.state.recorded \
                and not own_join(engine, stream.order, &ghost.state.snapshot):
            raise MemoryError()
    return 0


cdef Stream _known_stream(Stream wanted):
    """The live object of a stream. Drivers use a handle again, and never an identity."""
    cdef Stream stream
    for stream in wanted.context.streams.all():
        if stream.raw == wanted.raw and not stream.closed:
            if stream.ours or stream.identity == wanted.identity:
                return stream
            # Its owner has destroyed it. Only the context can tell when its work ends.
            own_stream_close(engine, stream.order)
    return None


cdef object user_of(unsigned int slot, uint64_t seq):
    """Whose operation it is: see `find_user`. None also if the host knows that it is over."""
    while True:
        bury_orphans()
        if own_known(engine, slot, seq):
            return None
        user = find_user(slot, seq)
        if user is not None or not is_dying(slot):
            return user
        let_others_go_on()


cdef object find_user(unsigned int slot, uint64_t seq):
    """The open Stream of an operation, or the last Event of a closed one, of any context.

    None if there is neither, as after the end of a thread whose default stream it was.
    """
    cdef Stream stream
    cdef Event ghost
    for context in contexts():
        for stream in (<Context>context).streams.all():
            if stream.order.slot == slot and not stream.closed:
                return stream
        for ghost in (<Context>context).ghosts:
            # The slot may have belonged to an earlier stream.
            if ghost.state.snapshot.slot == slot and ghost.state.snapshot.seq >= seq:
                return ghost
    return None


cdef bint may_synchronize(Context context) except -1:
    """Whether no stream that is known is being captured: cuCtxSynchronize would end that."""
    cdef Stream stream
    cdef int reason
    for stream in context.streams.all():
        if not stream.exposed or stream.thread not in (0, this_thread()):
            continue
        with nogil:
            reason = stream.probe()
        if reason not in (0, STREAM_IS_CLOSED):
            return False
    return True
