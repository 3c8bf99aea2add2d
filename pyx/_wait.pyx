"""Waiting for an event without the GIL, in a way that Ctrl-C and other signals interrupt.

The driver's own waits cannot be interrupted, so this one asks again and again: without a pause at
first, then with pauses that grow with the time waited, so that a long wait costs little.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from cudadrv._context cimport enter_context, leave_context
from cudadrv._driver cimport (
    CU_STREAM_CAPTURE_MODE_RELAXED, CUcontext, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUevent,
    CUresult, CUstream, CUstreamCaptureMode, bind_driver, cudadrv_table, cuEventQuery,
    cuStreamQuery, cuThreadExchangeStreamCaptureMode,
)

bind_driver(&cudadrv_table)


cdef extern from *:
    """
    #include <time.h>

    static int64_t wait_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }

    static void wait_pause(int64_t nanoseconds) {
        struct timespec pause = {0, (long)nanoseconds};
        nanosleep(&pause, NULL);
    }
    """
    int64_t wait_now() noexcept nogil
    void wait_pause(int64_t nanoseconds) noexcept nogil


cdef enum:
    SPIN_NS = 100_000           # ask without a pause for this long
    SIGNALS_NS = 5_000_000      # look for signals this often
    LONGEST_PAUSE_NS = 500_000


cdef CUresult query_event(CUcontext context, CUevent event) noexcept nogil:
    """Ask once, without an effect on other libraries' captures.

    The driver refuses where a lost context is current, so ours is.
    """
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    cdef bint pushed = False
    cdef CUresult status = enter_context(context, &pushed)
    if status == CUDA_SUCCESS:
        cuThreadExchangeStreamCaptureMode(&mode)
        status = cuEventQuery(event)
        cuThreadExchangeStreamCaptureMode(&mode)
        leave_context(pushed)
    return status


cdef CUresult query_stream(CUstream stream) noexcept nogil:
    """Ask once about a stream of the current context, which does not capture itself."""
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    cdef CUresult status
    cuThreadExchangeStreamCaptureMode(&mode)
    status = cuStreamQuery(stream)
    cuThreadExchangeStreamCaptureMode(&mode)
    return status


cdef CUresult wait_for_event(CUcontext context, CUevent event) except *:
    """Wait; give the last answer of cuEventQuery. Raises what a signal handler raises."""
    cdef CUresult status
    cdef int64_t start = wait_now()
    while True:
        with nogil:
            status = _ask(context, event, start)
        if status != CUDA_ERROR_NOT_READY:
            return status
        PyErr_CheckSignals()


cdef int64_t now_ns() noexcept nogil:
    """A time in nanoseconds, to take differences of."""
    return wait_now()


cdef void pause_after(int64_t waited) noexcept nogil:
    """Between two questions: no pause at first, then longer ones the more ns have gone by."""
    if waited > SPIN_NS:
        wait_pause(min(waited // 32, <int64_t>LONGEST_PAUSE_NS))


cdef int let_others_go_on() except -1:
    """Pause for a moment, for another thread to finish something. Signals interrupt."""
    with nogil:
        wait_pause(LONGEST_PAUSE_NS)
    PyErr_CheckSignals()
    return 0


cdef CUresult _ask(CUcontext context, CUevent event, int64_t start) noexcept nogil:
    cdef int64_t entered = wait_now()
    cdef int64_t now = entered
    cdef CUresult status
    while True:
        status = query_event(context, event)
        if status != CUDA_ERROR_NOT_READY or now - entered > SIGNALS_NS:
            return status
        pause_after(now - start)
        now = wait_now()
