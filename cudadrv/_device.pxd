"""Device and Context: GPUs and their contexts."""

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
    """Weak references to live objects. Other threads may add some during an iteration."""

    cdef set references
    cdef unsigned long long added   # how often `add` was called, to notice a call in between

    cdef object reference_to(self, object thing)
    cdef int add(self, object reference) except -1
    cdef list all(self)


cdef class Context


# The base of `Caches` (_pool.pyx), so that Context can refer to them.
cdef class Kept:
    cdef void end_with(self, Context context) noexcept


cdef class Context:
    cdef Device device
    cdef bint primary
    cdef CUcontext raw
    cdef own_domain *domain     # outlives the object while closed streams may have unfinished work
    cdef object policy          # None, or the name of its ordering policy
    cdef int lost               # the status of the sticky error that lost it, or 0
    cdef bint replaced          # it is lost because the device was reset
    cdef Alive streams          # its live Streams
    cdef list ghosts            # last Events of closed streams whose work may be unfinished
    cdef list stages            # page-locked Stages that no call has taken: see _staging.pyx
    cdef size_t staged          # bytes of the Stages in `stages`
    cdef size_t stage_bytes     # bytes of all its Stages
    cdef Kept caches            # None, or the Caches of its pools: see _pool.pyx
    # Default streams and internal ones, by name or by the number of their thread. They refer to
    # this context; the garbage collector breaks that cycle by clearing the dict.
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
    """Whether `usable` would not raise. Inlined, for the fast path."""
    return context.raw is not NULL and not context.lost and not cudadrv_table.forked


cdef inline bint is_current(CUcontext wanted) noexcept nogil:
    cdef CUcontext current = NULL
    return cuCtxGetCurrent(&current) == CUDA_SUCCESS and current == wanted


cdef inline CUresult enter_context(CUcontext wanted, bint *pushed) noexcept nogil:
    """Make a context current until `leave_context`.

    In a thread that has no current context it stays current, as in the runtime API. A context that
    another library made current comes back.
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
