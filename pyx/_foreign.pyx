"""Streams that are named by something else than their object: a handle, or a slot of the engine."""

from threading import get_ident

from cudadrv._context cimport Context, contexts, default_context
from cudadrv._driver cimport (
    CU_STREAM_NON_BLOCKING, CUcontext, CUDA_SUCCESS, CUresult, CUstream, bind_driver, cudadrv_table,
    cuStreamGetCtx, cuStreamGetFlags,
)
from cudadrv._event cimport Event, Waitable
from cudadrv._ghost cimport bury_orphans
from cudadrv._ownership cimport OWN_BLOCKING, OWN_NON_BLOCKING
from cudadrv._stream cimport Stream, wrap_stream

bind_driver(&cudadrv_table)


def stream_from_handle(size_t number, owner):
    """See `Stream.from_handle`."""
    cdef CUstream handle = <CUstream>number
    cdef Context context = default_context()
    cdef CUcontext found = NULL
    cdef unsigned int flags = 0
    cdef CUresult status
    if number <= 1:
        return Stream.legacy()
    if number == 2:
        return Stream.per_thread()
    with nogil:
        status = cuStreamGetCtx(handle, &found)
        if status == CUDA_SUCCESS:
            status = cuStreamGetFlags(handle, &flags)
        context.check(status)
    if found != context.raw:
        raise ValueError("the stream is of another context: make that one current, `with device:`")
    for stream in list(context.streams):
        if (<Stream>stream).raw == handle and not stream.closed:
            return stream
    return wrap_stream(context, handle,
                       OWN_NON_BLOCKING if flags & CU_STREAM_NON_BLOCKING else OWN_BLOCKING, owner)


cdef Waitable work_of_slot(unsigned int slot):
    """Something to wait for that covers all work of a stream slot; None if there is nothing."""
    cdef Stream stream
    cdef Event ghost
    bury_orphans()
    for context in contexts():
        for stream in list((<Context>context).streams):
            if stream.order.slot == slot and not stream.closed:
                # Another thread's default stream cannot be named in this one.
                return stream.waitable() if stream.thread in (0, get_ident()) else None
        for ghost in (<Context>context).ghosts:
            # The slot of one that is known may belong to another stream by now.
            if ghost.state.snapshot.slot == slot and not ghost.is_known():
                return ghost
    return None
