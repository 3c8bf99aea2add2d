"""Release: giving memory back to the driver when that can block nobody.

Freeing memory makes the driver wait for whatever runs on the device (measured: see docs/driver.md),
and a destructor must not. So memory whose last reference dies goes into a queue, which is emptied
when the GPU is seen to be idle, and by `reap`, which may block. Stream-ordered memory is freed on a
stream of the library's own that waits for its users, which never blocks.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdlib cimport free, malloc

from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._driver cimport (
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS, CUdeviceptr,
    CUresult, CUstreamCaptureMode, CUstreamCaptureStatus, bind_driver, cudadrv_table, cuEventQuery,
    cuMemFree, cuMemFreeAsync, cuMemFreeHost, cuStreamIsCapturing, cuStreamQuery,
    cuThreadExchangeStreamCaptureMode,
)
from cudadrv._errors cimport report
from cudadrv._event cimport Event, Waitable
from cudadrv._foreign cimport work_of_slot
from cudadrv._ghost cimport bury_orphans
from cudadrv._ownership cimport (
    OWN_OPEN, engine, own_borrow, own_borrows, own_memory, own_memory_clear,
    pthread_mutex_trylock, pthread_mutex_unlock,
)
from cudadrv._stream cimport Stream

from cudadrv._stream import call_after_wait

bind_driver(&cudadrv_table)

cdef struct pending:
    MemoryKind kind
    CUdeviceptr address
    own_memory *state
    PyObject *context
    pending *next

cdef pending *_queue = NULL


cdef void release_later(
    MemoryKind kind, CUdeviceptr address, own_memory *state, Context context
) noexcept:
    """Take over an allocation and its state. Makes no driver call, takes no lock."""
    global _queue
    cdef pending *node
    if context.lost or cudadrv_table.forked or kind == FOREIGN or address == 0:
        _forget(state)
        return
    node = <pending *>malloc(sizeof(pending))
    if node is not NULL:  # else it leaks: nothing better can be done here
        Py_INCREF(context)
        node[0] = pending(kind, address, state, <PyObject *>context, _queue)
        _queue = node


cdef CUresult free_memory(MemoryKind kind, CUdeviceptr address) noexcept nogil:
    """Free memory that nobody uses; may block. Its context is current."""
    if kind == LOCKED:
        return cuMemFreeHost(<void *><size_t>address)
    return cuMemFree(address)


cdef int drain(bint may_block) except -1:
    """Free what is in the queue, as far as that blocks nobody or `may_block` allows it."""
    global _queue
    cdef pending *node
    cdef pending *rest
    if _queue is NULL:
        return 0
    bury_orphans()
    idle = {}
    rest, _queue = _queue, NULL
    while rest is not NULL:
        node, rest = rest, rest.next
        context = <Context>node.context
        try:
            if context.lost or cudadrv_table.forked:
                done = True
            elif node.kind == STREAM_ORDERED:
                done = _free_behind_users(node, context)
            else:
                if context not in idle:
                    idle[context] = may_block or _is_idle(context)
                done = idle[context] and _free_idle(node, context, may_block)
        except BaseException:
            node.next, _queue = _queue, node
            while rest is not NULL:
                node, rest = rest, rest.next
                node.next, _queue = _queue, node
            raise
        if done:
            _forget(node.state)
            Py_DECREF(context)
            free(node)
        else:
            node.next, _queue = _queue, node
    return 0


def _drain_idle():
    drain(False)


call_after_wait(_drain_idle)


cdef Stream internal_stream(Context context):
    """The library's own stream of a context. It knows only what the host knows."""
    if context.internal is None:
        with context:
            context.internal = Stream()
    return context.internal


cdef void _forget(own_memory *state) noexcept:
    if state is not NULL:
        own_memory_clear(state)
        free(state)


cdef list _users(own_memory *state):
    """What to wait for before the memory can go; memory without a state has no users."""
    if state is NULL:
        return []
    cdef unsigned int i
    cdef unsigned int count = own_borrows(engine, state, 0, state.nbytes, NULL, 0)
    cdef own_borrow *borrows = <own_borrow *>malloc((count + 1) * sizeof(own_borrow))
    if borrows is NULL:
        raise MemoryError()
    slots = set()
    own_borrows(engine, state, 0, state.nbytes, borrows, count)
    for i in range(count):
        slots.add(borrows[i].epoch.slot)
    free(borrows)
    works = [work_of_slot(slot) for slot in slots]
    return [work for work in works if work is not None]


cdef bint _free_behind_users(pending *node, Context context) except -1:
    cdef Stream stream = internal_stream(context)
    cdef CUresult status
    cdef bint pushed = False
    for work in _users(node.state):
        stream.wait(work)
    with nogil:
        status = enter_context(context.raw, &pushed)
        if status == CUDA_SUCCESS:
            status = cuMemFreeAsync(node.address, stream.raw)
            leave_context(pushed)
    report(status)
    return True


cdef bint _free_idle(pending *node, Context context, bint may_block) except -1:
    cdef CUresult status
    cdef bint pushed = False
    # Another thread's capture must not see our free.
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    if may_block:
        for work in _users(node.state):
            work.synchronize()
    with nogil:
        status = enter_context(context.raw, &pushed)
        if status == CUDA_SUCCESS:
            cuThreadExchangeStreamCaptureMode(&mode)
            status = free_memory(node.kind, node.address)
            cuThreadExchangeStreamCaptureMode(&mode)
            leave_context(pushed)
    report(status)
    return True


cdef bint _is_idle(Context context) except -1:
    """Whether all known work of a context is complete. Changes what nobody knows."""
    cdef Stream stream
    cdef Event ghost
    cdef CUresult status
    for stream in list(context.streams):
        if stream.thread == 0 and not _stream_is_idle(stream):
            return False
    for ghost in context.ghosts:
        with nogil:
            status = cuEventQuery(ghost.raw)
        if status != CUDA_SUCCESS:
            return False
    return True


cdef bint _stream_is_idle(Stream stream) except -1:
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef bint pushed = False
    cdef bint idle = False
    with nogil:
        if pthread_mutex_trylock(stream.order.issue) == 0:
            if stream.order.state != OWN_OPEN:
                idle = True
            elif enter_context(stream.context.raw, &pushed) == CUDA_SUCCESS:
                idle = cuStreamIsCapturing(stream.raw, &capture) == CUDA_SUCCESS \
                    and capture == CU_STREAM_CAPTURE_STATUS_NONE \
                    and cuStreamQuery(stream.raw) == CUDA_SUCCESS
                leave_context(pushed)
            pthread_mutex_unlock(stream.order.issue)
    return idle
