"""Operation: the one way in which work reaches a stream."""

from cpython.pystate cimport PyThreadState, PyThreadState_Get

from cudadrv._driver cimport CUDA_SUCCESS, CUresult, CUstream, cudadrv_table, likely, unlikely
from cudadrv._engine cimport (
    engine, own_access, own_begin_alone, own_clock, own_conflict, own_memory, own_mutex_give,
    own_request, own_settle, own_settle_alone,
)
from cudadrv._site cimport site_of
from cudadrv._stream cimport (
    PyEval_RestoreThread, PyEval_SaveThread, Stream, check_stream, is_only_thread, names_context,
)


# Makes the driver calls of one operation. Sets *queued once the driver has accepted one of them.
ctypedef CUresult (*driver_call)(
    void *arguments, CUstream stream, bint *queued) noexcept nogil


cdef struct Operation:
    own_request request
    driver_call call
    void *arguments
    PyThreadState *thread   # the caller's


# Reasons of `issue` below the driver's statuses and those of Stream.enter.
cdef enum:
    REFUSED = -100  # minus the engine's answer


cdef int issue_unusual(Operation *operation, Stream stream) except? -1
cdef int after_failure(
    Operation *operation, Stream stream, CUresult status, bint queued) except? -1
cdef int note(Operation *operation, Stream stream) except? -1
cdef int attempt(Operation *operation, Stream stream) except? -1 nogil
cdef int ask(Operation *operation, Stream stream) except? -1


cdef inline void borrow_all(
    own_memory *memory, own_access *access, int mode, int policy
) noexcept:
    """Fill in the access of an operation that uses all of some memory."""
    access.memory = memory
    access.start = 0
    access.stop = memory.nbytes
    access.mode = mode
    access.policy = policy
    access.closes = False


cdef inline bint is_alone(PyThreadState *thread) noexcept:
    """Whether nobody else can be in the engine while the caller, whose state it is, has the GIL."""
    return is_only_thread(thread) and not cudadrv_table.ending


cdef inline void prepare(
    Operation *operation, int name, own_access *accesses, int count, driver_call call,
    void *arguments
) noexcept:
    """Fill in an operation that the user's current line makes."""
    operation.request.accesses = accesses
    operation.request.count = count
    operation.request.operation = name
    operation.thread = PyThreadState_Get()
    operation.request.site = site_of(operation.thread)
    operation.request.loan = NULL
    operation.request.returns = False
    operation.request.passive = False
    operation.call = call
    operation.arguments = arguments


cdef inline int issue(Operation *operation, Stream stream) except? -1:
    """Check it and hand it to the driver: 0, or the reason why not.

    After 0 the caller owns `request.issued`. A reason is the driver's status, one of
    enter_stream's, or REFUSED minus the engine's answer.

    Here is what most operations of a program's only thread need, in one piece with what made them.
    Nobody else is in the engine then, so nothing is locked; who comes while the GIL is let go
    finds the stream's issue lock taken.
    """
    cdef driver_call call = operation.call  # first: the compiler knows which one it is
    cdef PyThreadState *thread = operation.thread
    cdef bint queued = False
    cdef CUresult status
    check_stream(stream)
    operation.request.stream = stream.order
    if unlikely(not is_alone(thread) or not names_context(stream)) \
            or unlikely(not own_begin_alone(engine, &operation.request)):
        return issue_unusual(operation, stream)
    PyEval_SaveThread()
    status = call(operation.arguments, stream.raw, &queued)
    PyEval_RestoreThread(thread)
    if unlikely(status != CUDA_SUCCESS):
        return after_failure(operation, stream, status, queued)
    if likely(is_alone(thread)):
        own_settle_alone(engine, &operation.request)
    else:
        own_settle(engine, &operation.request)
    own_mutex_give(stream.order.issue)
    return 0


# The engine's answer to a request if what `waited` knows had been waited for, and the conflict.
ctypedef int (*question)(void *request, own_clock *waited) noexcept nogil

cdef list missing_waits(own_conflict *conflict, question still_in_the_way, void *request)
