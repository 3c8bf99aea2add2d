"""Device and Context: GPUs and their contexts."""

from libc.stdint cimport uint64_t

from cudadrv._driver cimport CUcontext, CUdevice, CUresult, cudadrv_table, unlikely
from cudadrv._engine cimport own_domain


cdef class Device:
    cdef int ordinal
    cdef CUdevice raw
    cdef object __weakref__

    cdef bytes uuid_bytes(self)
    cdef int attribute_value(self, int attribute) except? -1


cdef class Alive:
    """Weak references to live objects. Other threads may add some during an iteration."""

    cdef dict references
    cdef unsigned long long added   # how often `add` was called, so that callers notice a change

    cdef object reference_to(self, object thing)
    cdef int add(self, object reference) except -1
    cdef int remove(self, object thing) except -1
    cdef list all(self)


cdef class Context


# The base class of `Caches`. `Caches` is in _pool, which this module cannot import.
cdef class Kept:
    cdef void end_with(self, Context context) noexcept


cdef class Context:
    cdef Device device
    cdef bint primary
    cdef CUcontext raw
    # The engine's record of the context. It outlives this object while closed streams of the
    # context may have unfinished work.
    cdef own_domain *domain
    cdef bint same_tables       # the device uses the processor's page tables
    cdef object policy          # None, or the name of its ordering policy
    cdef int lost               # the status of the sticky error that lost the context, or 0
    cdef bint replaced          # whether the context is lost because the device was reset
    cdef Alive streams          # the live Streams of the context
    cdef Alive peers            # the live Contexts to whose memory `enable_access` gave access
    cdef list ghosts            # last Events of closed streams whose work may be unfinished
    cdef int captures           # how many of its streams cudadrv is capturing
    cdef bint prints            # whether one of its modules may call printf
    cdef str captured_by        # the name in messages of the capture that a stream joined last
    cdef int synchronizing      # how many threads are about to call, or in, cuCtxSynchronize
    # How many calls of cuCtxSynchronize have begun, and up to which of them a capture need not wait
    # for them, because the driver has looked for captures already.
    cdef uint64_t synchronizations, looked
    cdef list stages            # the Stages that no call uses at the moment: see _staging.pyx
    cdef size_t staged          # bytes of the Stages in `stages`
    cdef size_t stage_bytes     # bytes of all Stages of the context
    cdef Kept caches            # None, or the Caches of the context's pools: see _pool.pyx
    # Default streams and internal streams, by name or by the number of their thread, and the event
    # of loans. They refer to this context; the garbage collector breaks that cycle by clearing the
    # dict.
    cdef dict defaults
    cdef uint64_t birth         # see _site.pyx; 0 for primary contexts
    cdef object __weakref__

    cdef int usable(self) except -1
    cdef bint finish(self) except -1
    cdef int check(self, CUresult status) except -1 nogil
    cdef int raise_failure(self, CUresult status) except -1 with gil


cdef size_t resets      # how often testing.reset_device has reset the devices
cdef str RESET          # the message for objects from before the last reset
cdef bint is_primary_active(Device device) except -1
cdef Context default_context()
cdef Context context_of(object device)
cdef list contexts()
cdef int after_wait() except -1
cdef tuple unfinished_in(Context context)
cdef void report_in(Context context, CUresult status) noexcept
cdef bint begin_synchronizing(Context context) noexcept
cdef CUresult synchronize_now(Context context) noexcept
cdef bint synchronize_patiently(Context context) except -1


cdef enum Ending:
    ENDS_EVENT
    ENDS_GRAPH
    ENDS_EXECUTABLE


ctypedef void (*later_ender)(Ending what, size_t handle, Context context, object owner) noexcept
cdef void end_later_with(later_ender function) noexcept
cdef bint is_ended_later(
    CUresult status, Ending what, size_t handle, Context context, object owner) noexcept
cdef void report_end(
    CUresult status, Ending what, size_t handle, Context context, object owner) noexcept


# What _host_function does for this module.
cdef struct FunctionHooks:
    bint (*runs)() noexcept                 # whether the caller is a function of a stream
    int (*refuse)() except -1               # raise if it is
    int (*raise_known)() except -1          # raise the exceptions of functions that have failed
    int (*drop)(Context context) except -1  # drop the functions of a lost context


# The number of failed functions whose exceptions no wait has raised yet.
cdef Py_ssize_t failed_functions
cdef void call_functions_with(FunctionHooks hooks) noexcept
cdef void count_failed_functions(Py_ssize_t count) noexcept
cdef int raise_failed_functions() except -1


cdef inline int raise_failures() except -1:
    """Raise the exceptions of functions that streams have called and that are known to be complete.

    Called at the end of each wait of the program.
    """
    if unlikely(failed_functions != 0):
        raise_failed_functions()
    return 0


ctypedef int (*loan_ender)() except -1
cdef void end_loans_with(loan_ender function) noexcept
cdef int attend() except -1
cdef int refuse_here() except -1
cdef bint is_function() noexcept


cdef inline bint is_usable(Context context) noexcept:
    """Whether `usable` would neither raise nor end a loan. Inlined for the fast path."""
    return (not context.lost) & (not cudadrv_table.attention)


cdef inline bint is_alive(Context context) noexcept:
    """Like `is_usable`, but ignores returned loans that have not been ended yet."""
    return (not context.lost) & (not cudadrv_table.forked)
