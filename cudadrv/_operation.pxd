"""Operation: the one way in which work reaches a stream."""

from cpython.pystate cimport PyThreadState, PyThreadState_Get

from cudadrv._driver cimport CUDA_SUCCESS, CUresult, CUstream, cudadrv_table, likely, unlikely
from cudadrv._engine cimport (
    OWN_OK, OWN_STAYS, engine, own_access, own_begin, own_memory, own_mutex_give,
    own_mutex_try_alone, own_request, own_runs, own_settle,
)
from cudadrv._site cimport site_of
from cudadrv._stream cimport (
    REFUSED, PyEval_RestoreThread, PyEval_SaveThread, Stream, check_stream, driver_call,
    is_only_thread, takes_calls,
)


cdef struct Operation:
    own_request request
    driver_call call        # NULL: the operation makes no driver call
    void *arguments
    PyThreadState *thread   # the state of the calling thread


cdef int issue_unusual(
    Operation *operation, Stream stream, own_runs *runs, bint apart) except? -1
cdef int attempt(
    Operation *operation, Stream stream, own_runs *runs, bint apart, bint waits
) except? -1 nogil
cdef int after_failure(
    Operation *operation, Stream stream, CUresult status, bint again, bint queued, own_runs *runs
) noexcept nogil
cdef int ask(Operation *operation, Stream stream) except? -1
cdef CUresult record_call(void *event, CUstream stream, bint *queued) noexcept nogil


cdef inline void borrow_all(
    own_memory *memory, own_access *access, int mode, int policy
) noexcept:
    """Fill in the access of an operation that uses all bytes of an allocation."""
    access.memory = memory
    access.start = 0
    access.stop = memory.nbytes
    access.boxed = False
    access.mode = mode
    access.policy = policy
    access.effect = OWN_STAYS
    access.gone = NULL


cdef int name_ranges_with(object push, object pop) except -1


cdef inline bint is_alone(PyThreadState *thread) noexcept:
    """Whether no other thread can use the engine while the caller has the GIL.

    `thread` is the state of the calling thread. False if all operations take the slow path.
    """
    # Not `and`: the compiler would lose which branch of the callers is likely.
    return is_only_thread(thread) & (not cudadrv_table.slowly)


cdef inline void prepare(
    Operation *operation, int name, own_access *accesses, int count, driver_call call,
    void *arguments
) noexcept:
    """Fill in an operation. Its site is the user's line that is running now."""
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


cdef inline int issue(
    Operation *operation, Stream stream, own_runs *runs, bint apart
) except? -1:
    """Check an operation and pass it to the driver. Returns 0, or a reason why that failed.

    After 0 the caller owns the snapshot `request.issued`. A reason is a status of the driver, a
    reason of enter_stream, or REFUSED minus the engine's answer.

    For a launch of an executable graph, `runs` belongs to the executable: the driver runs each
    launch after the previous one, even on another stream. Such a launch is refused on a stream that
    is captured. For all other operations `runs` is NULL. `apart` is true if the accesses are the
    executable's own array, and no two of them use the same memory.

    This function is the fast path, and is inlined into the functions that make operations. It is
    for programs with one Python thread. No other thread can be in the engine then, so the engine's
    lock is not taken. The stream's issue lock is taken, because another thread may start while the
    GIL is released.
    """
    cdef driver_call call = operation.call  # read here, where the compiler still knows the value
    cdef PyThreadState *thread = operation.thread
    cdef bint queued = False
    cdef CUresult status
    check_stream(stream)
    operation.request.stream = stream.order
    if unlikely(not is_alone(thread)) or unlikely(not takes_calls(stream)) \
            or unlikely(not _take_issue_locks(stream, runs)):
        return issue_unusual(operation, stream, runs, apart)
    if unlikely(own_begin(engine, &operation.request, runs, apart, True) != OWN_OK):
        give_issue_locks(stream, runs)
        return issue_unusual(operation, stream, runs, apart)
    if call is not NULL:
        PyEval_SaveThread()
        status = call(operation.arguments, stream.raw, &queued)
        PyEval_RestoreThread(thread)
        if unlikely(status != CUDA_SUCCESS):
            with nogil:
                status = <CUresult>after_failure(
                    operation, stream, status, not queued, queued, runs)
            give_issue_locks(stream, runs)
            return status
    if likely(is_alone(thread)):
        own_settle(engine, &operation.request, runs, True)
    else:   # another thread has started while the GIL was released
        own_settle(engine, &operation.request, runs, False)
    give_issue_locks(stream, runs)
    return 0


cdef inline bint _take_issue_locks(Stream stream, own_runs *runs) noexcept:
    """Take the issue locks if they are free, for a caller who is alone (`is_alone`)."""
    if runs is not NULL and unlikely(not own_mutex_try_alone(&runs.last.issue)):
        return False
    if likely(own_mutex_try_alone(stream.order.issue)):
        return True
    if runs is not NULL:
        own_mutex_give(&runs.last.issue)
    return False


cdef inline void give_issue_locks(Stream stream, own_runs *runs) noexcept nogil:
    if runs is not NULL:
        own_mutex_give(&runs.last.issue)
    own_mutex_give(stream.order.issue)
