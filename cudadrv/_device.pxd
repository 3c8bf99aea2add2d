"""Device: one GPU, by ordinal."""

from cudadrv._driver cimport (
    CUDA_SUCCESS, CUcontext, CUdevice, CUresult, cuCtxGetCurrent, cuCtxPopCurrent, cuCtxPushCurrent,
    cuCtxSetCurrent, cudadrv_table, unlikely,
)
from cudadrv._engine cimport own_domain


cdef class Device:
    cdef int ordinal
    cdef CUdevice raw
    cdef object __weakref__

    cdef int attribute_value(self, int attribute) except? -1


cdef class Alive:
    """Objects that are alive, held weakly; other threads may add some while one looks at them."""

    cdef set references
    cdef unsigned long long added   # how often

    cdef object reference_to(self, object thing)
    cdef int add(self, object reference) except -1
    cdef list all(self)


cdef class Context


# Memory of a context that no buffer has: `Caches`.
cdef class Kept:
    cdef void end_with(self, Context context) noexcept


cdef class Context:
    cdef Device device
    cdef bint primary
    cdef CUcontext raw
    cdef own_domain *domain     # outlives the object while closed streams may have work
    cdef object policy          # None, or this context's ordering
    cdef int lost               # the sticky status, or 0
    cdef bint replaced          # the device was reset, and has a new context
    cdef Alive streams          # its live Streams
    cdef list ghosts            # farewell Events of closed streams with work that may be unfinished
    cdef list stages            # idle page-locked blocks for ordinary memory: see _staging.pyx
    cdef size_t staged          # their bytes,
    cdef size_t stage_bytes     # and those of all stages, also of busy ones
    cdef Kept caches            # None, or its memory that no buffer has: see _pool.pyx
    # Its default streams and the library's own, by name, and by thread. In a dict, so that the
    # garbage collector can end the cycle.
    cdef dict defaults
    cdef object __weakref__

    cdef int usable(self) except -1
    cdef int check(self, CUresult status) except -1 nogil
    cdef int raise_failure(self, CUresult status) except -1 with gil


cdef bint is_primary_active(Device device) except -1
cdef Context default_context()
cdef Context context_of(object device)
cdef list contexts()
cdef int after_wait() except -1
cdef void report_in(Context context, CUresult status) noexcept


cdef inline bint is_usable(Context context) noexcept:
    """Whether `usable` would refuse nothing: for paths that count every instruction."""
    return context.raw is not NULL and not context.lost and not cudadrv_table.forked


cdef inline bint is_current(CUcontext wanted) noexcept nogil:
    cdef CUcontext current = NULL
    return cuCtxGetCurrent(&current) == CUDA_SUCCESS and current == wanted


cdef inline CUresult enter_context(CUcontext wanted, bint *pushed) noexcept nogil:
    """Make a context current for the calls that follow, up to `leave_context`.

    A thread that has none gets it for good, as in the runtime API. Where another library has made
    another one current, that one comes back.
    """
    cdef CUcontext current = NULL
    pushed[0] = False
    cdef CUresult status = cuCtxGetCurrent(&current)
    if status != CUDA_SUCCESS or current == wanted:
        return status
    if current is NULL:
        return cuCtxSetCurrent(wanted)
    status = cuCtxPushCurrent(wanted)
    pushed[0] = status == CUDA_SUCCESS
    return status


cdef inline void leave_context(bint pushed) noexcept nogil:
    cdef CUcontext ours = NULL
    if unlikely(pushed):
        cuCtxPopCurrent(&ours)
