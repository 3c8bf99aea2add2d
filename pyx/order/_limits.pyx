"""Limits: what the driver sets aside in a context for kernels; and blocks that a profiler records.

State that outlives a call: how many such blocks are entered (the GIL guards it).
"""

import functools
import importlib
import operator

cimport cython

from cudadrv._device cimport Context, context_of, unfinished_in
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
    CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PERSISTING_L2_CACHE_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE,
    CU_LIMIT_STACK_SIZE, CUlimit, CUresult, has_answered, in_cuCtxGetLimit, in_cuCtxSetLimit,
    in_cuProfilerStart, in_cuProfilerStop, last_failure,
)
from cudadrv._errors cimport only_made_by
from cudadrv._operation cimport name_ranges_with

from cudadrv._errors import CudaError, OwnershipError

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_UNSUPPORTED_LIMIT


# ---- limits ----

@cython.final
cdef class ContextLimits:
    """ContextLimits(*args, **kwargs)\n--\n
    The limits of a context: ``context.limits``. Sizes are in bytes.

    Reading asks the driver (cuCtxGetLimit). Setting (cuCtxSetLimit) raises OwnershipError while
    work of the context may be unfinished: call `Context.synchronize` before. The driver may round a
    size up, so read it back. Setting raises ValueError for a negative size, or for one that the
    device does not have; CudaError for a size that the driver refuses. Other libraries that use the
    same context get the same limits.
    """

    cdef Context context
    cdef object __weakref__

    @property
    def printf_bytes(self):
        """The buffer for ``printf`` of kernels. Texts beyond it overwrite the oldest ones.

        It cannot change any more after a kernel that calls ``printf`` has been loaded and launched.
        """
        return _get(self, CU_LIMIT_PRINTF_FIFO_SIZE)

    @printf_bytes.setter
    def printf_bytes(self, value):
        _set(self, CU_LIMIT_PRINTF_FIFO_SIZE, "printf_bytes", value,
             "after a kernel that calls printf was launched, the buffer stays as it is")

    @property
    def heap_bytes(self):
        """The heap for ``malloc`` and ``new`` of kernels.

        It cannot change any more after a kernel that uses the heap was launched.
        """
        return _get(self, CU_LIMIT_MALLOC_HEAP_SIZE)

    @heap_bytes.setter
    def heap_bytes(self, value):
        _set(self, CU_LIMIT_MALLOC_HEAP_SIZE, "heap_bytes", value,
             "after a kernel that uses the heap was launched, the heap stays as it is")

    @property
    def stack_bytes(self):
        """The stack of each thread of a kernel."""
        return _get(self, CU_LIMIT_STACK_SIZE)

    @stack_bytes.setter
    def stack_bytes(self, value):
        _set(self, CU_LIMIT_STACK_SIZE, "stack_bytes", value, "the stack would be too large")

    @property
    def persisting_bytes(self):
        """The part of the L2 cache that is set aside for persisting accesses: `access_window`."""
        return _get(self, CU_LIMIT_PERSISTING_L2_CACHE_SIZE)

    @persisting_bytes.setter
    def persisting_bytes(self, value):
        value = _checked(value, "persisting_bytes")
        self.context.usable()
        most = self.context.device.attribute_value(
            CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE)
        if value > most:
            raise ValueError(f"persisting_bytes is {value}, and {self.context.device!r} has at most"
                             f" {most}")
        _set(self, CU_LIMIT_PERSISTING_L2_CACHE_SIZE, "persisting_bytes", value,
             "the device has no persisting cache")

    def __repr__(self):
        return f"<limits of {self.context!r}>"


only_made_by(ContextLimits, "use context.limits")


def limits_of_context(Context context not None):
    """Return the limits of a context: see `Context.limits`."""
    cdef ContextLimits limits = ContextLimits.__new__(ContextLimits)
    context.usable()
    limits.context = context
    return limits


cdef object _get(ContextLimits limits, CUlimit limit):
    cdef Context context = limits.context
    cdef size_t value = 0
    cdef CUresult status
    context.usable()
    with nogil:
        status = in_cuCtxGetLimit(context.raw, &value, limit)
    if has_answered(status, <CUresult>CUDA_ERROR_UNSUPPORTED_LIMIT):
        return 0
    context.check(status)
    return value


cdef object _checked(object value, str name):
    number = operator.index(value)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{name} is {number}, and must be a number of bytes from 0 on")
    return number


cdef int _set(
    ContextLimits limits, CUlimit limit, str name, object value, str reason
) except -1:
    """Set a limit, or raise. `reason` says why drivers may refuse a size for this context only."""
    cdef Context context = limits.context
    cdef size_t number = _checked(value, name)
    cdef CUresult status
    context.usable()
    works = unfinished_in(context)
    if works:
        raise OwnershipError(
            f"cannot set {name} of {context!r}:\n"
            f"  its work is not known to be complete: {works[-1]}.\n"
            f"  Release it with: {'device' if context.primary else 'context'}.synchronize().")
    with nogil:
        status = in_cuCtxSetLimit(context.raw, limit, number)
    if has_answered(status, CUDA_ERROR_INVALID_VALUE) \
            or has_answered(status, <CUresult>CUDA_ERROR_UNSUPPORTED_LIMIT):
        raise CudaError(<int>status, last_failure().decode(),
                        f"{name} of {context!r} cannot be {number}: {reason}, or no device has such"
                        " a size")
    context.check(status)
    return 0


# ---- blocks that a profiler records ----

cdef int _blocks = 0    # how many are entered


cdef int _begin_ranges() except -1:
    """Count a block. At the first one, every operation becomes a range if nvtx is installed."""
    global _blocks
    if _blocks == 0:
        _name_ranges()
    _blocks += 1    # last: a block that cannot be entered does not count
    return 0


cdef int _name_ranges() except -1:
    try:
        nvtx = importlib.import_module("nvtx")
    except ImportError:
        return 0
    return name_ranges_with(functools.partial(nvtx.push_range, domain="cudadrv"),
                            functools.partial(nvtx.pop_range, domain="cudadrv"))


cdef int _end_ranges() except -1:
    global _blocks
    _blocks -= 1
    if _blocks == 0:
        name_ranges_with(None, None)
    return 0


@cython.final
cdef class capture_profiler:
    """capture_profiler(*, device=None)\n--\n
    Let a profiler record a `with` block: ``nsys profile --capture-range=cudaProfilerApi``.

    If the package ``nvtx`` is installed, each operation that is queued in the block, in any thread,
    is an NVTX range of the domain "cudadrv", named by the operation and its line:
    ``copy_from_async at pipeline.py:12``. Operations then take somewhat longer.

    Nothing else happens without such a profiler. Work that was queued before the block and runs in
    it is recorded, too; to exclude it, call ``context.synchronize()`` before the block. Blocks may
    be nested: the profiler then stops at the end of the innermost block, because it knows only one
    range.

    Parameters
    ----------
    device : Device, optional
        The device whose primary context is used; default: the current context.

    Raises CudaError if the driver refuses, and RuntimeError if a block is entered twice.

    Driver functions: cuProfilerStart, cuProfilerStop.
    """

    cdef Context context
    cdef bint entered
    cdef object __weakref__

    def __cinit__(self, *, device=None):
        self.context = context_of(device)

    def __enter__(self):
        """Start the profiler."""
        cdef CUresult status
        if self.entered:
            raise RuntimeError("this block is entered already; call capture_profiler() again")
        self.entered = True     # before any step that lets other threads run
        try:
            self.context.usable()
            _begin_ranges()
            with nogil:
                status = in_cuProfilerStart(self.context.raw)
            if status != CUDA_SUCCESS:
                _end_ranges()
            self.context.check(status)
        except BaseException:
            self.entered = False
            raise
        return self

    def __exit__(self, kind, exception, traceback):
        """Stop the profiler. A lost context has nothing to stop."""
        cdef CUresult status
        if not self.entered:
            raise RuntimeError("this block is not entered, or has ended already")
        self.entered = False
        _end_ranges()
        if self.context.lost:
            return
        with nogil:
            status = in_cuProfilerStop(self.context.raw)
        if exception is None:
            self.context.check(status)

    def __repr__(self):
        return f"<capture_profiler of {self.context!r}>"
