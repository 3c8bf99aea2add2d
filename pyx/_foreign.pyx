"""Streams that exist without us, or are named by something else than their object."""

import operator
import threading

from cudadrv._context cimport Context, context_of, contexts, default_context
from cudadrv._driver cimport (
    CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_LEGACY, CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD,
    CUcontext, CUDA_SUCCESS, CUresult, CUstream, CUstreamCaptureStatus, bind_driver, cudadrv_table,
    cuStreamGetCtx, cuStreamGetFlags, cuStreamGetId, cuStreamGetPriority, cuStreamIsCapturing,
)
from cudadrv._errors cimport refuse_capture
from cudadrv._event cimport Event
from cudadrv._ghost cimport bury_orphans, is_finished, this_thread
from cudadrv._ownership cimport (
    OWN_BLOCKING, OWN_LEGACY, OWN_NON_BLOCKING, OWN_PER_THREAD, engine, own_stream_close,
)
from cudadrv._stream cimport Stream, open_stream

bind_driver(&cudadrv_table)

_per_thread = threading.local()


def legacy_stream(device):
    """See `Stream.legacy`."""
    cdef Context context = context_of(device)
    if "legacy" not in context.defaults:
        context.defaults["legacy"] = _wrap(context, CU_STREAM_LEGACY, OWN_LEGACY)
    return context.defaults["legacy"]


def per_thread_stream(device):
    """See `Stream.per_thread`."""
    cdef Context context = context_of(device)
    cdef Stream stream
    streams = _per_thread.__dict__.setdefault("streams", {})
    if context not in streams:
        stream = _wrap(context, CU_STREAM_PER_THREAD, OWN_BLOCKING)
        stream.thread = this_thread()
        stream.order.kind = OWN_PER_THREAD
        streams[context] = stream
    return streams[context]


cdef Stream _wrap(Context context, CUstream handle, int order):
    """A stream that is not ours to destroy."""
    cdef Stream stream = Stream.__new__(Stream)
    context.usable()
    stream.raw = handle
    stream.exposed = True
    open_stream(stream, context, order)
    context.streams.add(stream)
    return stream


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
    with nogil:
        context.check(_describe(raw, &capture, &found, &identity, &flags, &priority))
    if capture != CU_STREAM_CAPTURE_STATUS_NONE:
        refuse_capture(f"the stream with the handle {number:#x}")
    context = _context_of_raw(found)
    stream = _known_stream(context, raw, identity)
    if stream is None:
        stream = _wrap(
            context, raw, OWN_NON_BLOCKING if flags & CU_STREAM_NON_BLOCKING else OWN_BLOCKING)
        stream.identity = identity
        stream.priority = priority
    if owner is not None and stream.owner is not owner:
        stream.owner = owner if stream.owner is None else (stream.owner, owner)
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


cdef Stream _known_stream(Context context, CUstream handle, unsigned long long identity):
    """The live object of a stream. Drivers use a handle again, and never an identity."""
    cdef Stream stream
    for stream in list(context.streams):
        if stream.raw == handle and not stream.closed:
            if stream.ours or stream.identity == identity:
                return stream
            # Its owner has destroyed it. Only the context can tell when its work ends.
            own_stream_close(engine, stream.order)
    return None


cdef object user_of_slot(unsigned int slot):
    """The open Stream that has a slot, or the last Event of a closed one, of any context.

    None if there is neither, as after the end of a thread whose default stream had it.
    """
    cdef Stream stream
    cdef Event ghost
    bury_orphans()
    for context in contexts():
        for stream in list((<Context>context).streams):
            if stream.order.slot == slot and not stream.closed:
                return stream
        for ghost in (<Context>context).ghosts:
            # The slot of one that is known may belong to another stream by now.
            if ghost.state.snapshot.slot == slot and not is_finished(ghost):
                return ghost
    return None
