"""Operation: the one way in which work reaches a stream.

An operation is checked, borrowed and handed to the driver under the stream's issue lock and without
the GIL, so that what the engine believes and what the driver does cannot differ. A refused operation
has changed nothing, and has made no driver call that queues anything.
"""

from cudadrv._context cimport leave_context
from cudadrv._driver cimport CUDA_SUCCESS, CUresult
from cudadrv._foreign cimport work_of_slot
from cudadrv._ownership cimport (
    OWN_MUST_WAIT, OWN_OK, engine, own_access, own_begin, own_settle, own_undo,
    pthread_mutex_lock, pthread_mutex_unlock,
)
from cudadrv._site cimport here
from cudadrv._stream cimport Stream


cdef void prepare(
    Operation *operation, int name, own_access *accesses, int count, driver_call call,
    void *arguments
) noexcept:
    """Fill in an operation that the user's current line makes."""
    operation.request.accesses = accesses
    operation.request.count = count
    operation.request.operation = name
    operation.request.site = here()
    operation.call = call
    operation.arguments = arguments


cdef int issue(Operation *operation, Stream stream) except? -1:
    """Check it and hand it to the driver: 0, or the reason why not.

    After 0 the caller owns `request.issued`. A reason is the driver's status, one of Stream.enter's,
    or REFUSED minus the engine's answer.
    """
    cdef int reason
    stream.usable()
    operation.request.stream = stream.order
    while True:
        with nogil:
            reason = _attempt(operation, stream)
        if reason != REFUSED - OWN_MUST_WAIT:
            return reason
        work = work_of_slot(operation.request.conflict.epoch.slot)
        if work is None:  # known to be complete by now, or nobody can wait for it
            return reason
        stream.wait(work)


cdef int _attempt(Operation *operation, Stream stream) except? -1 nogil:
    cdef bint pushed = False
    cdef bint queued = False
    cdef CUresult status
    cdef int answer
    cdef int reason
    pthread_mutex_lock(stream.order.issue)
    reason = stream.enter(&pushed)
    if reason == 0:
        answer = own_begin(engine, &operation.request)
        if answer == OWN_OK:
            status = operation.call(operation.arguments, stream.raw, &queued)
            if status == CUDA_SUCCESS or queued:
                own_settle(engine, &operation.request)
            else:
                own_undo(engine, &operation.request)
            reason = status
        else:
            reason = REFUSED - answer
        leave_context(pushed)
    pthread_mutex_unlock(stream.order.issue)
    return reason
