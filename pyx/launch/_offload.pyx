# cython: nonecheck=True
"""Offload: arrays of the host that a device uses for a block, or for one launch.

An array is *captured* while a block uses it, or while a launch has results that are not yet copied
to the array.

State that outlives a call: `_captures`, the captures that have not ended, and those whose array
could not be made writable again yet (the GIL guards it).
"""

from threading import RLock

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from cudadrv._buffers cimport DeviceBuffer, LockedBuffer, new_buffer
from cudadrv._copy cimport blocking_stream, copy_async
from cudadrv._device cimport Context, raise_failures
from cudadrv._driver cimport cudadrv_table
from cudadrv._engine cimport engine, own_export_close
from cudadrv._errors cimport only_made_by, report_text, uninitialized
from cudadrv._names cimport COPY_TO_ASYNC, OFFLOAD
from cudadrv._region cimport is_ndarray, items_of, plain_array, pointer_of
from cudadrv._site cimport here, place as line_at
from cudadrv._stream cimport Stream, context_for, known_stream, stream_for
from cudadrv._token cimport Token, wait_for_token

from cudadrv._device import call_after_wait
from cudadrv._errors import ContextLostError, OwnershipError

# A subclass of ndarray can override its attributes, so the getters of ndarray itself are used.
cdef object _flags_of = np.ndarray.flags.__get__
cdef object _base_of = np.ndarray.base.__get__
cdef object _shape_of = np.ndarray.shape.__get__
cdef object _dtype_of = np.ndarray.dtype.__get__
cdef object _set_flags = np.ndarray.setflags
cdef tuple WORDS = ("", "In", "Out", "InOut")
cdef tuple GROUPS = ("", "array", "out array", "inout array")

# ---- arguments of launches ----


@cython.final
cdef class ArrayArgument:
    """ArrayArgument(*args, **kwargs)\n--\n
    A kernel argument: a NumPy array that is copied to the device for one launch. See `In`, `Out`
    and `InOut`.

    Attributes
    ----------
    array : numpy.ndarray
    """

    @property
    def array(self):
        """The array that is passed."""
        return self.array

    def __repr__(self):
        return f"{WORDS[self.way]}(array of shape {_shape_of(self.array)}, {_dtype_of(self.array)})"


only_made_by(ArrayArgument, "use cudadrv.In(array), Out(array) or InOut(array)")


cdef ArrayArgument _argument(object array, Way way):
    cdef ArrayArgument argument
    if not is_ndarray(array):
        _refuse_type(f"{WORDS[way]}()", array)
    argument = ArrayArgument.__new__(ArrayArgument)
    argument.array, argument.way = array, way
    return argument


def In(array):
    """Return an argument for `Kernel.launch`: a NumPy array whose items the kernel reads.

    The launch copies the items to a buffer on the device and passes that buffer. The array may
    change as soon as the call returns. Raises TypeError if the argument is not a NumPy array.
    """
    return _argument(array, IN)


def Out(array):
    """Return an argument for `Kernel.launch`: a NumPy array for the results of the kernel.

    The launch passes a buffer on the device, and returns a `ResultToken`, whose ``wait`` copies all
    items of the buffer to the array; until then the array is captured and read-only. The buffer is
    undefined at first: use `InOut` if the kernel does not write every item. Raises TypeError if the
    argument is not a NumPy array.
    """
    return _argument(array, OUT)


def InOut(array):
    """Return an argument for `Kernel.launch`: a NumPy array whose items the kernel changes.

    Like `Out`, but the buffer begins with a copy of the items of the array.
    """
    return _argument(array, INOUT)


# ---- captures ----

cdef list _captures = []
cdef bint _is_called = False    # whether synchronizations call `_end_again`


@cython.final
cdef class Capture:
    """An array of the host that a device uses. Internal to cudadrv."""

    cdef str describe(self):
        return f"{self.label}, of shape {self.shape} and dtype {self.dtype},"


cdef int _refuse_type(str label, object given) except -1:
    raise TypeError(f"{label} takes a NumPy array, not {type(given).__name__}; make one:"
                    " numpy.asarray(...)")


cdef Capture _new_capture(object array, Way way, str label, uint32_t site):
    """Check an array, and make a capture of it. `_begin` begins the capture."""
    cdef Capture capture = Capture.__new__(Capture)
    cdef Py_buffer view
    if not is_ndarray(array):
        _refuse_type(label, array)
    plain = plain_array(array)
    items_of(plain.dtype)
    capture.array, capture.way, capture.label, capture.site = array, way, label, site
    capture.shape, capture.dtype, capture.count = plain.shape, plain.dtype, plain.size
    if not plain.flags.c_contiguous:
        raise ValueError(f"{capture.describe()} is not C-contiguous; pass a contiguous copy:"
                         " numpy.ascontiguousarray(array)")
    PyObject_GetBuffer(plain.reshape(-1).view(np.uint8), &view, PyBUF_SIMPLE)
    capture.start, capture.nbytes = <size_t>view.buf, view.len
    PyBuffer_Release(&view)
    return capture


cdef int _begin(list captures, bint snapshots) except -1:
    """Capture arrays, and make them read-only. With `snapshots`, arrays that are only read are not
    captured, because they are copied within the call.
    """
    cdef Capture capture, other
    global _is_called
    if not _is_called:
        _is_called = True
        call_after_wait(_end_again)
    for i, capture in enumerate(captures):
        for other in (<list>captures)[:i]:
            if _conflict(capture, other):
                raise ValueError(
                    f"{capture.describe()} shares memory with {other.label}; results for the one"
                    " would change the other. For the same array pass it once, as inout")
        for other in _captures:
            if not other.over and _conflict(capture, other):
                raise OwnershipError(
                    f"{capture.describe()} shares memory with the {other.label} of the block or"
                    f" launch at {line_at(other.site)}, which is not over; end that block, or wait"
                    " for that token, first")
    for capture in captures:
        if capture.way != IN and not _is_writable(capture.array):
            raise ValueError(f"{capture.describe()} is read-only, so no results can come home to"
                             " it")
    for capture in captures:
        if capture.way != IN or not snapshots:
            _captures.append(capture)
            capture.locked = _lock(capture.array)
    return 0


cdef bint _conflict(Capture one, Capture other) noexcept:
    """Whether two arrays share memory, and one of the two gets results."""
    return (one.way != IN or other.way != IN) and one.nbytes and other.nbytes \
        and one.start < other.start + other.nbytes and other.start < one.start + one.nbytes


cdef bint _lock(object array) except -1:
    """Make an array read-only. Returns False if it is read-only, or could not be unlocked again."""
    if not _is_writable(array) or not _can_be_unlocked(array):
        return False
    _set_flags(array, False)
    return True


cdef bint _is_writable(object array) except -1:
    return _flags_of(array).writeable


cdef bint _can_be_unlocked(object array) except -1:
    """Whether NumPy lets a writable array that is made read-only become writable again."""
    cdef Py_buffer view
    if _flags_of(array).owndata:
        return True
    base = _base_of(array)
    while is_ndarray(base):
        if _is_writable(base) or _is_locked(base):
            return True
        if _flags_of(base).owndata:
            return False
        base = _base_of(base)
    if base is None:
        return False
    try:
        PyObject_GetBuffer(base, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    except (TypeError, BufferError, ValueError):
        return False
    PyBuffer_Release(&view)
    return True


cdef bint _is_locked(object array) noexcept:
    """Whether an array is read-only because it is captured."""
    cdef Capture capture
    for capture in _captures:
        if capture.locked and capture.array is array:
            return True
    return False


cdef int end_captures(list captures) except -1:
    """End captures: make their arrays writable again. May be called twice.

    A view cannot be writable while its base is read-only because of another capture. It then stays
    in the list until that capture ends, too.
    """
    cdef Capture capture
    for capture in captures:
        capture.over = True
    while True:
        capture = _next_unlocked()
        if capture is None:
            break
        _captures.remove(capture)
    return _report_locked()


def _end_again():
    """End the captures that could not be ended when memory had run out."""
    cdef Capture capture
    for capture in _captures:
        if capture.over:
            end_captures([])
            break


cdef Capture _next_unlocked():
    """Unlock the array of a capture that is over. Return that capture, or None if there is none."""
    cdef Capture capture
    for capture in _captures:
        if capture.over and _unlock(capture):
            return capture
    return None


cdef bint _unlock(Capture capture) except -1:
    """Make an array writable again. Returns False if its base is read-only.

    If the array was captured again meanwhile, that capture takes over the lock.
    """
    cdef Capture other
    cdef int trial
    if not capture.locked:
        return True
    for other in _captures:
        if other.array is capture.array and not other.over:
            other.locked, capture.locked = True, False
            return True
    for trial in range(2):
        try:
            _set_flags(capture.array, True)
        except ValueError:
            return False
        except MemoryError:  # NumPy allocates a few bytes for this
            if trial:
                raise
        else:
            break
    capture.locked = False
    return True


cdef int _report_locked() except -1:
    """Warn of arrays that stay read-only although all captures are over. Forget these captures."""
    cdef Capture capture
    for capture in _captures:
        if not capture.over:
            return 0
    while _captures:
        capture = _captures.pop()
        report_text(f"an array of shape {capture.shape} stays read-only after its capture,"
                    " because the array it is a view of was made read-only meanwhile")
    return 0


# ---- to the device and back ----

cdef int _allocate(list captures, Context context, Stream stream) except -1:
    """Make the buffers of captures, on the stream if there is one."""
    cdef Capture capture
    for capture in captures:
        capture.buffer = new_buffer(
            DeviceBuffer, capture.count, capture.dtype, context, stream, capture.label)
        if len(capture.shape) > 1:
            capture.buffer.sizes = capture.shape
        if capture.way != IN:  # allocate now: if memory runs out, no work has been queued yet
            capture.home = new_buffer(
                LockedBuffer, capture.count, capture.dtype, context, stream, capture.label)
    return 0


cdef int _check_locks(list captures) except -1:
    """Raise if the program has made a captured array writable: its items may have changed."""
    cdef Capture capture
    for capture in captures:
        if capture.locked and _is_writable(capture.array):
            raise OwnershipError(
                f"{capture.describe()} was made writable by the program while it was captured at"
                f" {line_at(capture.site)}. No results have come home")
    return 0


cdef int _deliver(list captures) except -1:
    """Copy the results that have arrived to their arrays, and end the captures.

    Either all arrays get their results, or none does: everything that can fail is done before the
    first byte is copied.
    """
    cdef Capture capture
    _check_locks(captures)
    end_captures(captures)
    try:
        for capture in captures:
            if capture.home is not None and capture.nbytes:
                _open(capture)
        for capture in captures:
            if capture.exported:
                source = <size_t>pointer_of(capture.home)
                _copy(&capture.view, source)
    finally:
        for capture in captures:
            _close(capture)
    return 0


cdef void _copy(Py_buffer *view, size_t source) noexcept:
    with nogil:
        memcpy(view.buf, <const void *>source, view.len)


cdef int _open(Capture capture) except -1:
    """Get access to the memory of an array, and to its results in page-locked memory."""
    plain = plain_array(capture.array)
    if not plain.flags.c_contiguous:
        raise ValueError(f"{capture.describe()} is not C-contiguous any more")
    PyObject_GetBuffer(plain.reshape(-1).view(np.uint8), &capture.view, PyBUF_WRITABLE)
    capture.viewed = True
    if <size_t>capture.view.len != capture.nbytes:
        raise ValueError(f"{capture.describe()} had {capture.nbytes} bytes, and has"
                         f" {capture.view.len}: it was changed meanwhile")
    capture.home.open_view(&capture.export, "read")
    capture.exported = True
    return 0


cdef int _close(Capture capture) except -1:
    if capture.exported:
        capture.exported = False
        own_export_close(engine, &capture.export)
    if capture.viewed:
        capture.viewed = False
        PyBuffer_Release(&capture.view)
    return 0


# ---- a block ----

@cython.final
@cython.no_gc_clear
cdef class offload:
    """offload(*arrays, out=(), inout=(), stream=None, device=None)\n--\n
    Use NumPy arrays on a device in a `with` block.

    ``with cu.offload(x, out=y, inout=z) as (dx, dy, dz):`` copies ``x`` and ``z`` to new
    DeviceBuffers, and makes all three arrays read-only: writing to one of them inside the block
    raises ValueError at that line. At the end the block waits for the work of ``stream``, copies
    the results from ``dy`` and ``dz`` to ``y`` and ``z``, makes the arrays writable again, and
    closes the buffers. If the block ends by an exception, nothing is copied: all arrays are as they
    were, and the buffers stay open. If copying fails, no array has changed, either.

    The buffers are in the order: arrays, ``out``, ``inout``. Those of ``out`` are undefined at
    first.

    Parameters
    ----------
    *arrays : numpy.ndarray
        C-contiguous arrays that are only read on the device.
    out : numpy.ndarray, or list or tuple of them
        Arrays for results only.
    inout : numpy.ndarray, or list or tuple of them
        Arrays that are read and get results.
    stream : Stream, optional
        The stream that copies. Work of other streams on the buffers has to be ordered before it at
        the end of the block. Default: the current stream of a ``with stream:`` block, else an
        internal one: then, at the end, the host has to know that work on the buffers is complete.
    device : Device, optional
        Default: the device of the stream, else the current context.

    Raises
    ------
    TypeError, ValueError
        No array is given, or an argument is not an array; an array has a mask, Python objects or
        gaps, or is read-only and gets results; arrays share memory, and one of them gets results.
    OwnershipError
        An array shares memory with one that another block or launch still uses, and one of the two
        gets results; or an array was made writable inside the block.
    RuntimeError
        The block was entered before.
    BufferBorrowedError, BufferExportedError, BufferClosedError
        At the end of the block, for a buffer that is in use: see docs/errors.md.
    CudaError
        A driver call failed.

    Other arrays over the same memory that were made before stay writable. An array whose memory
    belongs to another library may stay writable itself. cudadrv cannot see what is written through
    such arrays.

    Driver functions: those of `DeviceBuffer`, `LockedBuffer`, `Buffer.copy_from` and
    `Stream.synchronize`; cuMemcpyDtoHAsync.
    """

    cdef list given         # (array, way, label) of each array
    cdef Stream stream
    cdef object device
    cdef list captures      # the captures of the block; None before it begins
    cdef bint ended
    cdef object __weakref__

    def __init__(self, *arrays, out=(), inout=(), stream=None, device=None):
        cdef list given = []
        for way, group in ((IN, arrays), (OUT, out), (INOUT, inout)):
            for i, array in enumerate(_listed(group, GROUPS[way])):
                label = f"{GROUPS[way]} {i}"
                if not is_ndarray(array):
                    _refuse_type(label, array)
                given.append((array, way, label))
        if not given:
            raise TypeError("offload needs at least one array")
        self.stream = known_stream(stream)
        self.device = device
        self.given = given

    def __dealloc__(self):
        if self.captures is not None and not self.ended:
            end_captures(self.captures)

    def __enter__(self):
        """Capture the arrays, and copy them to the device. Blocks until that is complete."""
        cdef Context context
        cdef Stream found = self.stream
        cdef Capture capture
        cdef list captures = []
        if self.given is None or self.captures is not None:
            raise RuntimeError("this block has been entered already; call offload() again")
        context = context_for(found, self.device)
        if found is None:
            found = stream_for(None, context)
        site = here()
        for array, way, label in self.given:
            captures.append(_new_capture(array, way, label, site))
        if self.captures is not None:
            raise RuntimeError("another thread has just entered this block: it has been entered"
                               " already; call offload() again")
        self.captures = captures
        try:
            _begin(captures, False)
            _allocate(captures, context, found)
            for capture in captures:
                if capture.way != OUT:
                    capture.buffer.copy_from(capture.array, stream=found)
        except BaseException:
            self._end()
            raise
        self.stream = found
        buffers = []
        for capture in captures:
            buffers.append(capture.buffer)
        return tuple(buffers)

    def __exit__(self, kind, exception, traceback):
        """Copy the results to their arrays, and close the buffers. Blocks until that is done.

        If the block ended by an exception, only makes the arrays writable again.
        """
        cdef list captures = self.captures
        if captures is None or self.ended:
            raise RuntimeError("this block is not entered, or has ended already")
        self.ended = True       # before any step that lets other threads run
        try:
            if exception is None:
                self._bring_home(captures)
        finally:
            self._end()
        if exception is None:
            _close_buffers(captures)

    def __repr__(self):
        if self.given is None:
            return uninitialized(self)
        state = "" if self.captures is None else ", over" if self.ended else ", entered"
        return f"<offload of {len(self.given)} arrays{state}>"

    cdef int _bring_home(self, list captures) except -1:
        cdef Capture capture
        cdef Token last = None
        _check_locks(captures)
        for capture in captures:
            if capture.home is not None:
                last = copy_async(OFFLOAD, capture.home, capture.buffer,
                                  blocking_stream(self.stream, capture.buffer), "offload")
        if self.stream is not None:
            self.stream._finish()
        elif last is not None:
            last._finish()
        return _deliver(captures)

    cdef int _end(self) except -1:
        self.ended = True
        return end_captures(self.captures)


cdef object _listed(object group, str what):
    """Return the arrays of an argument that takes one or several."""
    if is_ndarray(group):
        return (group,)
    if not isinstance(group, (tuple, list)):
        _refuse_type(what, group)
    return group


cdef int _close_buffers(list captures) except -1:
    """Close all buffers that are not in use, and raise the first error."""
    cdef Capture capture
    first = None
    for capture in captures:
        try:
            capture.buffer.close()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
    return 0


# ---- a launch ----

cdef list captures_of(tuple arguments, Stream stream):
    """Capture the arrays in `In`, `Out` and `InOut` among the arguments of a launch.

    The captures have their buffers, but nothing is copied yet.
    """
    cdef list captures = []
    site = here()
    for i, argument in enumerate(arguments):
        if type(argument) is ArrayArgument:
            way = (<ArrayArgument>argument).way
            captures.append(_new_capture(
                (<ArrayArgument>argument).array, way, f"argument {i} ({WORDS[way]})", site))
    try:
        _begin(captures, True)
        _allocate(captures, stream.context, stream)
    except BaseException:
        end_captures(captures)
        raise
    return captures


cdef int upload(list captures, Stream stream) except -1:
    """Queue the copies to the device. The arrays may change when this returns."""
    cdef Capture capture
    for capture in captures:
        if capture.way != OUT:
            capture.buffer.copy_from_async(capture.array, stream)
    return 0


cdef object bring_home_later(Token token, list captures, Stream stream):
    """Queue copies of a launch's results to page-locked memory. Return the token for these results.

    Returns the launch's token itself if there are no results.
    """
    cdef Capture capture
    cdef Token last = None
    cdef ResultToken results
    for capture in captures:
        if capture.home is not None:
            last = copy_async(COPY_TO_ASYNC, capture.home, capture.buffer, stream, "launch")
    if last is None:
        return token
    results = ResultToken.__new__(ResultToken)
    results.launch, results.last, results.captures = token, last, captures
    results.lock = RLock()
    return results


@cython.final
@cython.no_gc_clear
cdef class ResultToken:
    """ResultToken(*args, **kwargs)\n--\n
    A queued launch with `Out` or `InOut` arguments, whose results `wait` copies to arrays.

    It is used like a `Token`. `wait`, ``await`` and a `done` that is True copy the results to the
    arrays, and make the arrays writable again. Nothing else does, not even
    ``stream.synchronize()``. If the last reference to the token is dropped before that, the results
    are lost: a `CudaWarning` says so, and the arrays keep their old items.

    Attributes
    ----------
    stream : Stream
    token : Token
        The token of the launch alone, for ``other.wait(results.token)``.
    """

    cdef Token launch
    cdef Token last         # the token of the last copy to page-locked memory
    cdef list captures      # None once the results were copied back, or are lost
    cdef bint lost
    cdef bint told          # whether a wait has failed, so that __dealloc__ need not warn
    cdef object lock        # held while results are copied, so that other threads wait for the copy
    cdef object __weakref__

    def __dealloc__(self):
        captures, self.captures = self.captures, None
        if captures is not None:
            end_captures(captures)
            if not self.told and not cudadrv_table.ending:
                report_text(f"the results of a launch queued at {self.launch.site} never came home"
                            " to their arrays, because nobody waited for its token: token.wait()")

    @property
    def stream(self):
        """The stream that the launch was queued on."""
        return self.launch.stream

    @property
    def token(self):
        """The token of the launch alone. Waiting for it copies no results."""
        return self.launch

    @property
    def reads(self):
        """The buffers that the launch reads, as a tuple."""
        return self.launch.reads

    @property
    def writes(self):
        """The buffers that the launch writes, as a tuple."""
        return self.launch.writes

    @property
    def site(self):
        """The line that queued the launch, such as ``"pipeline.py:41"``."""
        return self.launch.site

    @property
    def done(self):
        """Whether the results are in their arrays. Brings them there if the launch is complete.

        Does not wait for the device. Raises what `wait` raises.
        Driver functions: those of `Token.done`.
        """
        try:
            if not self.last.done:
                return False
        except BaseException as error:
            self._note(error)
            raise
        self._bring_home()
        return True

    def synchronize(self, *, timeout=None):
        """The same as `wait`: streams and events have a method of this name, too."""
        return self.wait(timeout=timeout)

    def wait(self, *, timeout=None):
        """Block until the launch is complete, and copy the results to the arrays.

        Either all arrays get their results, or none does. A wait that is interrupted or runs out of
        time changes nothing.

        Parameters
        ----------
        timeout : float, optional
            As for `Token.wait`.

        Raises
        ------
        OwnershipError
            The program has made an array writable meanwhile; or an earlier call has failed to copy
            the results to the arrays, and they are lost.
        ValueError
            An array has another size or layout than before, or its memory is read-only.

        Also raises what `Token.wait` raises. Driver functions: those of `Token.wait`.
        """
        try:
            wait_for_token(self.last, timeout)
        except BaseException as error:
            self._note(error)
            raise
        self._bring_home()
        raise_failures()

    def __await__(self):
        """__await__($self, /)\n--\n
        ``await token`` waits without blocking the event loop. It has the same effect as `wait`."""
        try:
            yield from self.last._completion()
        except BaseException as error:
            self._note(error)
            raise
        self._bring_home()
        raise_failures()

    def __repr__(self):
        state = "lost" if self.lost else "home" if self.captures is None else "not home"
        return f"<ResultToken of {self.launch!r}, results {state}>"

    cdef int _bring_home(self) except -1:
        self.lock.acquire()
        try:
            if self.lost:
                raise OwnershipError(f"the results of the launch queued at {self.launch.site} are"
                                     " lost: an earlier call could not bring them home. The buffers"
                                     " still have them: token.writes")
            captures, self.captures = self.captures, None
            if captures is not None:
                self.lost = True
                try:
                    _deliver(captures)
                    self.lost = False
                finally:
                    end_captures(captures)
        finally:
            self.lock.release()
        return 0

    cdef int _note(self, object error) except -1:
        """Note that a wait has failed. If the context is lost, no results can come any more."""
        self.told = True
        if not isinstance(error, ContextLostError):
            return 0
        self.lock.acquire()
        try:
            captures, self.captures = self.captures, None
            if captures is not None:
                self.lost = True
                end_captures(captures)
        finally:
            self.lock.release()
        return 0


only_made_by(ResultToken, "launches with Out or InOut arguments return these")
