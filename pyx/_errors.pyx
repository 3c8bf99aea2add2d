"""Errors: the exceptions, and the one way from a driver's status to one of them."""

import operator
import sys
import warnings

from cudadrv._driver cimport (
    CUDA_ERROR_NOT_SUPPORTED, CUresult, CUDA_SUCCESS, bind_driver, cudadrv_table,
    cuGetErrorString, last_failure,
)

from cudadrv._status import CUresult as Status

bind_driver(&cudadrv_table)

_is_finalizing = sys.is_finalizing  # kept: modules lose their names as the interpreter ends


class OwnershipError(RuntimeError):
    """A rule of buffer ownership was broken. Nothing has reached the driver."""


class BufferBorrowedError(OwnershipError, BufferError):
    """GPU work that is not known to be ordered before this access still uses the memory."""


class BufferExportedError(OwnershipError, BufferError):
    """A host view (memoryview, NumPy array) of the memory is alive."""


class BufferClosedError(OwnershipError, ValueError):
    """The buffer was closed, or moved by ``take()`` or ``into_raw()``."""


class EventNotRecordedError(OwnershipError):
    """The event was never recorded, so there is nothing to wait for."""


class ForkedError(OwnershipError):
    """This process is a fork of the one that used the driver, and CUDA does not survive a fork."""


class CudaError(RuntimeError):
    """A driver call failed.

    Attributes
    ----------
    status : CUresult
        What the driver answered.
    call : str
        The driver function that failed, such as ``"cuMemAlloc"``.
    detail : str
        What cudadrv knows besides; "" if nothing.
    """

    def __init__(self, status, call, detail=""):
        self.status = Status(status)
        self.call = call
        self.detail = detail
        super().__init__(_message(self.status, call, detail))

    def __reduce__(self):
        return type(self), (self.status, self.call, self.detail)


class CudaOutOfMemoryError(CudaError, MemoryError):
    """The driver has no memory left for this; the message lists the live buffers by line."""


class CudaNotFoundError(CudaError, LookupError):
    """The driver does not know the name that was asked for."""


class CudaImageError(CudaError):
    """The driver cannot load an image: PTX that is wrong or too new, a cubin of another device.

    Attributes
    ----------
    log : str
        What its compiler says, with line numbers of the PTX; "" where it says nothing.
    """

    def __init__(self, status, call, detail="", log=""):
        self.log = log
        super().__init__(status, call, detail)

    def __reduce__(self):
        return type(self), (self.status, self.call, self.detail, self.log)


class ContextLostError(CudaError):
    """An error that the context does not survive, such as an illegal address in a kernel.

    Attributes
    ----------
    suspects : tuple of str
        The operations that were not known to be complete when it was noticed, oldest first for
        each stream, with the lines that queued them.
    """

    def __init__(self, status, call, detail="", suspects=()):
        self.suspects = tuple(suspects)
        super().__init__(status, call, detail)

    def __reduce__(self):
        return type(self), (self.status, self.call, self.detail, self.suspects)


class DriverNotFoundError(CudaError):
    """No usable libcuda.so.1: it is missing, is not a driver, or has no device."""


class CudaWarning(RuntimeWarning):
    """An error in a place where nothing can be raised, such as a destructor."""


CLASSES = {
    Status.CUDA_ERROR_OUT_OF_MEMORY: CudaOutOfMemoryError,
    Status.CUDA_ERROR_NOT_FOUND: CudaNotFoundError,
}

CAPTURING = "Another library is capturing a graph, in a mode that allows no such call meanwhile," \
            " and the driver may have ended the capture for it. Call it before the capture or" \
            " after it."
HINTS = {
    Status.CUDA_ERROR_NOT_SUPPORTED:
        "The driver or the device does not have this function; `python -m cudadrv info` lists what"
        " the driver lacks.",
    Status.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: CAPTURING,
    Status.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: CAPTURING,
}

# After one of these every later call of the context fails (measured; see docs/driver.md).
STICKY = frozenset({
    Status.CUDA_ERROR_ECC_UNCORRECTABLE,
    Status.CUDA_ERROR_ILLEGAL_ADDRESS,
    Status.CUDA_ERROR_LAUNCH_TIMEOUT,
    Status.CUDA_ERROR_CONTEXT_IS_DESTROYED,
    Status.CUDA_ERROR_ASSERT,
    Status.CUDA_ERROR_HARDWARE_STACK_ERROR,
    Status.CUDA_ERROR_ILLEGAL_INSTRUCTION,
    Status.CUDA_ERROR_MISALIGNED_ADDRESS,
    Status.CUDA_ERROR_INVALID_ADDRESS_SPACE,
    Status.CUDA_ERROR_INVALID_PC,
    Status.CUDA_ERROR_LAUNCH_FAILED,
})
cdef int STICKY_STATUS[16]
cdef int STICKY_COUNT = 0
for _status in STICKY:
    STICKY_STATUS[STICKY_COUNT] = _status
    STICKY_COUNT += 1


cdef bint is_sticky(CUresult status) noexcept nogil:
    """Whether the context of the call is lost."""
    cdef int i
    for i in range(STICKY_COUNT):
        if <int>status == STICKY_STATUS[i]:
            return True
    return False


def _message(status, call, detail):
    words = _words(status)
    text = f"{call}: {status.name} ({int(status)})"
    if words:
        text += f": {words}"
    return f"{text}\n{detail}" if detail else text


_known_words = {}  # a lost context's error is raised again without asking the driver


def _words(status):
    """What the driver says about a status."""
    cdef const char *text = NULL
    cdef CUresult code = <CUresult><int>status
    if status not in _known_words:
        if cuGetErrorString(code, &text) != CUDA_SUCCESS or text is NULL:
            return "operation not supported" if code == CUDA_ERROR_NOT_SUPPORTED else ""
        _known_words[status] = text.decode(errors="replace")
    return _known_words[status]


cdef int refuse_if_forked() except -1:
    """Raise ForkedError in a forked child: before any lock is taken and before any driver call."""
    if cudadrv_table.forked:
        raise ForkedError(
            "this process was forked from one that had loaded the CUDA driver, and the driver does "
            "not work in the child. Start processes with multiprocessing's 'spawn' method, or fork "
            "before the first use of cudadrv."
        )
    return 0


def integer(value, name):
    """The int that an argument stands for; TypeError, with its name, if it is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None


cdef int close_at_end(object thing, object raised, str what) except -1:
    """Close it at the end of its block; an exception that is on its way gets a note instead."""
    try:
        thing.close()
    except Exception as error:
        if raised is None:
            raise
        raised.add_note(f"cudadrv: leaving the block did not close the {what}: {error}")
    return 0


cdef int refuse_capture(str stream) except -1:
    raise OwnershipError(f"{stream} is capturing a graph, begun by another library; cudadrv cannot"
                         " yet take part in a capture. End it first.")


cdef int raise_status(CUresult status) except -1 with gil:
    """Raise the exception of a status; `last_failure` names the call."""
    refuse_if_forked()
    call = last_failure().decode()
    raise CLASSES.get(<int>status, CudaError)(<int>status, call, HINTS.get(<int>status, ""))


cdef void report(CUresult status) noexcept with gil:
    """Warn about a failed call where nothing can be raised. Says nothing in a forked child."""
    if status == CUDA_SUCCESS or cudadrv_table.forked or _is_finalizing():
        return
    call = last_failure().decode()
    report_text(_message(Status(<int>status), call, ""))


cdef void report_text(str text) noexcept:
    """Warn where nothing can be raised. Says nothing when the interpreter ends."""
    if _is_finalizing():
        return
    try:
        warnings.warn(text, CudaWarning, stacklevel=1)
    except CudaWarning as warning:  # the filters say that warnings are errors
        _unraisable(warning)


cdef void _unraisable(warning) noexcept:
    raise warning  # out of a function that cannot raise: Python's unraisable hook gets it
