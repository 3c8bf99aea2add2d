"""Errors: the exceptions, and the functions that raise them for a driver's status.

State that outlives a call: texts of statuses, and `CUresult` once it is loaded (the GIL guards
them).
"""

import operator
import sys
import warnings
from functools import partial

from cudadrv._driver import failure_log

from cudadrv._driver cimport (
    CUDA_ERROR_ASSERT, CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_ECC_UNCORRECTABLE,
    CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_NOT_FOUND,
    CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_SUCCESS, CUresult, cudadrv_table, cuGetErrorString,
    exchange_call, last_failure,
)

from cpython.type cimport PyType_Modified
from cpython.object cimport PyObject, PyTypeObject, Py_TPFLAGS_HEAPTYPE, newfunc

_is_finalizing = sys.is_finalizing  # looked up now, because modules lose their attributes at exit


class OwnershipError(RuntimeError):
    """A rule of ownership was broken. The call was refused before it reached the driver."""


class BufferBorrowedError(OwnershipError, BufferError):
    """GPU work that this access is not ordered after may still use the memory."""


class BufferExportedError(OwnershipError, BufferError):
    """A host view (memoryview, NumPy array) of the memory is alive, or the memory is lent."""


class MigrationError(OwnershipError):
    """Managed memory changed sides more often than a `migration_limit` block allows."""


class BufferClosedError(OwnershipError, ValueError):
    """The buffer was closed, or moved by ``take()`` or ``into_raw()``."""


class ContentsDiscardedError(OwnershipError, BufferError):
    """The contents of the memory were discarded, and nothing has written them since."""


class EventNotRecordedError(OwnershipError):
    """The event was never recorded, so there is nothing to wait for."""


class CaptureError(OwnershipError):
    """The call cannot be a part of the capture of a graph, or the graph cannot be captured."""


class ForkedError(OwnershipError):
    """This process is a fork of the one that used the driver, and CUDA does not survive a fork."""


class SignalError(OwnershipError):
    """A signal would not grow, or a wait for it would never end."""


class HostFunctionError(OwnershipError):
    """A function that a stream calls has called cudadrv, which could wait for ever there."""


class CudaError(RuntimeError):
    """A driver call failed.

    Attributes
    ----------
    status : CUresult
        The status that the driver returned.
    call : str
        The driver function that failed, such as ``"cuMemAlloc"``.
    detail : str
        What cudadrv adds to the driver's own text; "" if it adds nothing.
    notes : tuple of str
        What the driver logged about the call (``cuLogsRegisterCallback``); empty before CUDA 12.9.
        Tracebacks show these lines below the message.
    """

    def __init__(self, status, call, detail=""):
        self.notes = _logged_for(call)  # first: the calls below may fail, too
        self.status = status_of(status)
        self.call = call
        self.detail = detail
        message = _message(self.status, call, detail)
        super().__init__(message)
        for line in self.notes:
            if line not in message:     # the software driver's text of a fault is also `detail`
                self.add_note(f"the driver says: {line}")

    def __reduce__(self):
        # The dictionary has what the driver said in the process that raised the exception.
        return type(self), (self.status, self.call, self.detail), {"__notes__": [], **self.__dict__}


class CudaOutOfMemoryError(CudaError, MemoryError):
    """There is not enough memory.

    If a buffer cannot be allocated, the message lists the live buffers, grouped by the lines that
    made them.
    """


class CudaNotFoundError(CudaError, LookupError):
    """The given name was not found, for example the name of a kernel in a module."""


class CudaImageError(CudaError):
    """The driver cannot load an image: PTX that is wrong or too new, a cubin for another device.

    Attributes
    ----------
    log : str
        The log of the driver's compiler, with line numbers of the PTX; "" if there is none.
    """

    def __init__(self, status, call, detail="", log=""):
        self.log = log
        super().__init__(status, call, detail)

    def __reduce__(self):
        return type(self), (self.status, self.call, self.detail, self.log), super().__reduce__()[2]


class ContextLostError(CudaError):
    """The context was lost by an error, such as an illegal address in a kernel.

    Attributes
    ----------
    suspects : tuple of str
        The operations that were not known to be complete when the error was noticed, with the lines
        that queued them: the last 32 of each stream, oldest first. Empty if the context was lost
        by an error that was raised before.
    """

    def __init__(self, status, call, detail="", suspects=()):
        self.suspects = tuple(suspects)
        super().__init__(status, call, detail)

    def __reduce__(self):
        return type(self), (self.status, self.call, self.detail, self.suspects), \
            super().__reduce__()[2]


class DriverNotFoundError(CudaError):
    """There is no usable libcuda.so.1. It is missing, is not a driver, or finds no device."""


class CudaWarning(RuntimeWarning):
    """Warns of an error where nothing can be raised, such as in a destructor."""


CLASSES = {
    <int>CUDA_ERROR_OUT_OF_MEMORY: CudaOutOfMemoryError,
    <int>CUDA_ERROR_NOT_FOUND: CudaNotFoundError,
}

CAPTURING = "Another library is capturing a graph, in a mode that allows no such call meanwhile," \
            " and the driver may have ended the capture for it. Call it before the capture or" \
            " after it."
HINTS = {
    <int>CUDA_ERROR_NOT_SUPPORTED:
        "The driver or the device does not have this function; `python -m cudadrv info` lists what"
        " the driver lacks.",
    <int>CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: CAPTURING,
    <int>CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: CAPTURING,
}

# After one of these statuses, every later call in the context fails (measured: docs/driver.md).
STICKY = frozenset({
    <int>CUDA_ERROR_ECC_UNCORRECTABLE,
    <int>CUDA_ERROR_ILLEGAL_ADDRESS,
    <int>CUDA_ERROR_LAUNCH_TIMEOUT,
    <int>CUDA_ERROR_CONTEXT_IS_DESTROYED,
    <int>CUDA_ERROR_ASSERT,
    <int>CUDA_ERROR_HARDWARE_STACK_ERROR,
    <int>CUDA_ERROR_ILLEGAL_INSTRUCTION,
    <int>CUDA_ERROR_MISALIGNED_ADDRESS,
    <int>CUDA_ERROR_INVALID_ADDRESS_SPACE,
    <int>CUDA_ERROR_INVALID_PC,
    <int>CUDA_ERROR_LAUNCH_FAILED,
})
cdef int STICKY_STATUS[16]
cdef int STICKY_COUNT = 0
for _status in STICKY:
    STICKY_STATUS[STICKY_COUNT] = _status
    STICKY_COUNT += 1


cdef object _statuses = None    # CUresult, loaded on first use because the class is slow to make


cdef object status_of(int status):
    """Return a status as a `CUresult`."""
    global _statuses
    if _statuses is None:
        from cudadrv._status import CUresult as _statuses
    return _statuses(status)


cdef bint is_sticky(CUresult status) noexcept nogil:
    """Whether a call with this status has lost its context."""
    cdef int i
    for i in range(STICKY_COUNT):
        if <int>status == STICKY_STATUS[i]:
            return True
    return False


def _logged_for(call):
    """Return what the driver logged about this call, if it is the last that failed in this thread.

    The driver's last line about a failed call repeats the status, and is left out. Lines before
    the last line of another call are about that call, which another library has made.
    """
    if last_failure() != call.encode():
        return ()
    found, last = [], False
    for line in failure_log():
        if last:
            found.clear()
        # "Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuMemAlloc_v2"
        last = line.startswith("Returning ")
        if not last:
            found.append(line)
    return tuple(found)


def _message(status, call, detail):
    words = _words(status)
    text = f"{call}: {status.name} ({int(status)})"
    if words:
        text += f": {words}"
    return f"{text}\n{detail}" if detail else text


# The driver's text of each status. The texts are kept, because raising a ContextLostError again
# must not call the driver.
_known_words = {}


def _words(status):
    """Return the driver's text for a status, or "" if it has none."""
    cdef const char *text = NULL
    cdef CUresult code = <CUresult><int>status
    if status not in _known_words:
        if cuGetErrorString(code, &text) != CUDA_SUCCESS or text is NULL:
            return "operation not supported" if code == CUDA_ERROR_NOT_SUPPORTED else ""
        _known_words[status] = text.decode(errors="replace")
    return _known_words[status]


cdef int refuse_if_forked() except -1:
    """Raise ForkedError in a forked child.

    Must be called before any lock is taken, and before the driver is called.
    """
    if cudadrv_table.forked:
        raise ForkedError(
            "this process was forked from one that had loaded the CUDA driver, and the driver does "
            "not work in the child. Start processes with multiprocessing's 'spawn' method, or fork "
            "before the first use of cudadrv."
        )
    return 0


def integer(value, name):
    """Convert an argument to an int. If it is not an integer, raise a TypeError that names it."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None


cdef int close_at_end(object thing, object raised, str what) except -1:
    """Close an object at the end of its `with` block.

    `raised` is the exception that ended the block, or None. If closing fails while `raised`
    propagates, the failure is added to `raised` as a note, and is not raised.
    """
    try:
        thing.close()
    except Exception as error:
        if raised is None:
            raise
        raised.add_note(f"cudadrv: leaving the block did not close the {what}: {error}")
    return 0


cdef refusal_hearer _hear_refusal = NULL


def _init_and_tell(self, *arguments):
    RuntimeError.__init__(self, *arguments)
    if _hear_refusal is not NULL:   # the trace may have ended meanwhile
        _hear_refusal(self)


cdef int tell_refusals_to(refusal_hearer function) except -1:
    """Call a function for each OwnershipError that is made, until it is NULL again.

    Without such a function, OwnershipError has no `__init__`.
    """
    global _hear_refusal
    _hear_refusal = function
    if function is not NULL:
        OwnershipError.__init__ = _init_and_tell
    elif "__init__" in OwnershipError.__dict__:
        del OwnershipError.__init__
    return 0


cdef dict _makers = {}      # for each class that programs cannot call: how to get an object of it


cdef int only_made_by(object cls, str how) except -1:
    """Let calls of a class, and of its `__new__`, raise TypeError(how).

    The module of the class can still make objects with ``Class.__new__(Class)``: Cython compiles
    this to a call of the C function, which does not use the slot `tp_new`. Other modules have to
    call a function of that module.
    """
    _makers[cls] = how
    exchange_call(cls, NULL)    # calls of the class then use `tp_new`
    (<PyTypeObject *>cls).tp_new = <newfunc>_refuse_new
    return 0


cdef object _refuse_new(type cls, PyObject *given, PyObject *options):
    raise TypeError(_makers[cls])


cdef class _Hint:
    """The descriptor of a name that a class does not have, but classes of other libraries have.

    Reading it raises AttributeError, which says what to use. A method `__getattr__` would do the
    same, but then Python looks up all attributes of the class slowly.
    """

    cdef str name
    cdef str how

    def __get__(self, thing, cls):
        if thing is None:
            return self
        raise AttributeError(
            f"{type(thing).__name__} has no attribute {self.name!r}: {self.how}")

    def __repr__(self):
        return f"<no attribute: {self.how}>"


cdef class _Names:
    """The descriptor `__dir__` of a class with hints: lists the names without the hints."""

    def __get__(self, thing, cls):
        return self if thing is None else partial(_names_of, thing)


def _names_of(thing):
    members, found = {}, []
    for cls in type(thing).__mro__[::-1]:
        members.update(cls.__dict__)
    for name in object.__dir__(thing):
        if not isinstance(members.get(name), _Hint):
            found.append(name)
    return found


cdef int hint(object cls, dict names) except -1:
    """Let a class say what to use instead of attributes that it does not have, by name."""
    cdef _Hint each
    cdef dict members = <dict>(<PyTypeObject *>cls).tp_dict
    for name, how in names.items():
        each = _Hint.__new__(_Hint)
        each.name, each.how = name, how
        members[name] = each
    members["__dir__"] = _Names()
    PyType_Modified(cls)
    return 0


cdef list _type_names = []  # `tp_name` points into these


def show_as(module, str names not None, str package not None):
    """Let classes and functions say that a package defines them, not the module.

    `names` are their names in the module. Messages, tracebacks and pickles name them by their
    ``__module__``.
    """
    cdef str name
    cdef bytes whole
    for name in names.split():
        thing = getattr(module, name)
        if isinstance(thing, type) and not (<PyTypeObject *>thing).tp_flags & Py_TPFLAGS_HEAPTYPE:
            whole = f"{package}.{name}".encode()
            _type_names.append(whole)
            (<PyTypeObject *>thing).tp_name = whole
        else:
            thing.__module__ = package


cdef int refuse_uninitialized(object thing) except -1:
    """Raise for an object whose ``__init__`` never ran."""
    raise TypeError(f"this {type(thing).__name__} was never initialized")


cdef str uninitialized(object thing):
    """Return the repr of an object whose ``__init__`` never ran."""
    return f"<{type(thing).__name__}, never initialized>"


cdef int refuse_capture(str stream) except -1:
    raise OwnershipError(f"{stream} is capturing a graph, begun by another library. To take part"
                         " in that: with cudadrv.joins_capture(stream) as kept: ... Or end it"
                         " first.")


cdef context_loser _lose_context = NULL


cdef void lose_contexts_with(context_loser function) noexcept:
    """Register the function that raises for a sticky status, and marks a context as lost.

    The function is in `_device`, which this module cannot import.
    """
    global _lose_context
    _lose_context = function


cdef int raise_status(CUresult status) except -1 with gil:
    """Raise the exception for a status. `last_failure` names the driver function that returned it.

    If the status is sticky, the current context counts as lost. For a call in a known context, use
    `Context.check` instead.
    """
    refuse_if_forked()
    if is_sticky(status) and _lose_context is not NULL:
        return _lose_context(status)
    call = last_failure().decode()
    raise CLASSES.get(<int>status, CudaError)(<int>status, call, HINTS.get(<int>status, ""))


cdef void report(CUresult status) noexcept with gil:
    """Warn about a failed call where nothing can be raised. Does nothing in a forked child."""
    if status == CUDA_SUCCESS or cudadrv_table.forked or _is_finalizing():
        return
    if is_sticky(status):
        _report_loss(status)
        return
    call = last_failure().decode()
    report_text(_message(status_of(<int>status), call, ""))


cdef void _report_loss(CUresult status) noexcept:
    try:
        raise_status(status)
    except Exception as error:
        report_text(str(error))


cdef void report_text(str text) noexcept:
    """Warn where nothing can be raised. Does nothing while the interpreter exits."""
    if _is_finalizing():
        return
    try:
        warnings.warn(text, CudaWarning, stacklevel=1)
    except CudaWarning as warning:  # Python's warning filters can turn a warning into an exception
        _unraisable(warning)


cdef void _unraisable(warning) noexcept:
    raise warning  # the function is noexcept, so this calls sys.unraisablehook
