# cython: nonecheck=True
"""Buffer: what the three kinds have in common, who uses one, and `reap`."""

from typing import NamedTuple

from cpython.pystate cimport PyThreadState
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cudadrv._closing cimport make_room
from cudadrv._copy cimport (
    blocking_stream, copy_and_wait, copy_async, fill_region, new_loan, nothing_to_do,
    refuse_other_device, required_stream, set_item,
)
from cudadrv._device cimport Context, context_of, contexts
from cudadrv._driver cimport CUdeviceptr, bind_driver, cudadrv_table, likely, unlikely, words
from cudadrv._engine cimport (
    OWN_BORROWED, OWN_OK, OWN_REACH, OWN_READ, OWN_SHARED, OWN_WRITE, engine, own_borrow,
    own_borrows, own_conflict, own_current, own_obstacle, own_suspect,
)
from cudadrv._errors cimport close_at_end, refuse_if_forked
from cudadrv._library cimport ensure_driver
from cudadrv._memory cimport label_at
from cudadrv._names cimport (
    COPY_FROM, COPY_FROM_ASYNC, COPY_TO, COPY_TO_ASYNC, FILL, FILL_ASYNC, host_wait, operation_name,
    stream_name,
)
from cudadrv._ordering cimport policy_in_force
from cudadrv._pool cimport trim_caches
from cudadrv._refusal cimport excluding_work, view_end, view_line
from cudadrv._region cimport Region, dtype_name, is_region, plain_array, pointer_of
from cudadrv._release cimport DEVICE, STREAM_ORDERED, drain
from cudadrv._site cimport here, place
from cudadrv._staging cimport array_of, copy_array, drop_idle_stages, target_array
from cudadrv._stream cimport known_stream, stream_for
from cudadrv._token cimport Token

from cudadrv._errors import ForkedError

bind_driver(&cudadrv_table)

# ---- who uses a buffer ----

cdef extern from "Python.h":
    PyThreadState *PyGILState_GetThisThreadState() noexcept nogil
    bint PyGC_Disable() noexcept
    bint PyGC_Enable() noexcept
    void PyErr_Fetch(PyObject **type, PyObject **value, PyObject **traceback) noexcept
    void PyErr_Restore(PyObject *type, PyObject *value, PyObject *traceback) noexcept
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef dict MODES = {OWN_READ: "read", OWN_WRITE: "write", OWN_SHARED: "shared", OWN_REACH: "use"}


cdef enum:
    MOST_LINES = 20


class Borrow(NamedTuple):
    """One GPU use of a buffer that is not known to be complete.

    ``mode`` is "read", "write" or "shared", or "use" where nobody knows which; ``stream`` is the
    stream's name as messages show it; ``operation`` and ``site`` say what queued it and where;
    ``start`` and ``stop`` are bytes of the buffer.
    """

    mode: str
    stream: str
    operation: str
    site: str
    start: int
    stop: int


cdef tuple borrows_of(Region region):
    """All of them."""
    listed, _, _ = _look(region, 0xffffffff)
    return tuple(listed)


cdef tuple _look(Region region, unsigned int most):
    """The borrows, at most so many; how many there are; in which ways the host can wait for them.
    """
    cdef own_borrow *found
    cdef size_t end = region.start + region.nbytes
    cdef unsigned int count
    cdef unsigned int i
    if region.memory is None or region.nbytes == 0:
        return [], 0, []
    refuse_if_forked()  # before any lock is taken
    count = own_borrows(engine, region.memory.state, region.start, end, NULL, 0)
    if count == 0:
        return [], 0, []
    most = min(count, most)
    found = <own_borrow *>malloc(most * sizeof(own_borrow))
    if found is NULL:
        raise MemoryError()
    try:
        count = own_borrows(engine, region.memory.state, region.start, end, found, most)
        borrows, ways = [], {}
        for i in range(min(count, most)):
            borrows.append(_borrow(&found[i], region.start))
            ways[_wait(found[i].kind)] = None
        return borrows, count, list(ways)
    finally:
        free(found)


cdef object _borrow(own_borrow *found, size_t start):
    return Borrow(
        MODES[found.epoch.mode],
        stream_name(found.number, found.kind), operation_name(found.epoch.operation),
        place(found.epoch.site), found.start - start, found.stop - start)


cdef str state_of(Region region):
    """For `repr`: ", read by Stream 2"."""
    try:
        borrows, count, _ = _look(region, 1)
    except ForkedError:
        return ""
    if not borrows:
        return ""
    first = borrows[0]
    doing = {"write": "written", "use": "used"}.get(first.mode, first.mode)
    more = f" and {count - 1} more" if count > 1 else ""
    return f", {doing} by {first.stream}{more}"


cdef str _obstacle(Region region, list ways):
    """What is in the way besides `borrows_of`, as a line, or ""; adds the way out."""
    cdef own_conflict conflict
    answer = own_obstacle(engine, region.memory.context.domain, region.memory.state, region.start,
                          region.start + region.nbytes, &conflict)
    if answer == OWN_OK:
        return ""
    if answer == OWN_BORROWED:
        ways.append(_wait(conflict.kind))
        return excluding_work(&conflict)
    ways.append(f"{view_end(&conflict)}.")
    return view_line(&conflict)


cdef str explain_region(Region region):
    if region.moved:
        return f"{region.describe()} was moved at {place(region.moved_at)}."
    if region.closed:
        return f"{region.describe()} is closed."
    ways = []
    obstacle = _obstacle(region, ways)
    borrows, count, waits = _look(region, MOST_LINES)
    if not borrows and not obstacle:
        return f"{region.describe()} is free: no GPU work that uses it may be unfinished."
    lines = [f"{region.describe()} is in use:"]
    if obstacle:
        lines.append(obstacle)
    for each in borrows:
        lines.append(f"  bytes {each.start}:{each.stop}: {each.mode} by {each.operation} on"
                     f" {each.stream}, queued at {each.site}")
    if count > len(borrows):
        lines.append(f"  and {count - len(borrows)} more; buffer.borrows lists all of them")
    for way in waits:
        if way not in ways:
            ways.append(way)
    return "\n".join(lines + ways)


cdef str _wait(int kind):
    return f"Release it with: {host_wait(kind)}."


# ---- what the software driver asks, for its reports of data races ----
#
# `_operation` is called inside of the driver. The other two are called at the end of a driver call,
# by the thread that made it. That thread may hold issue locks of ours: so nothing here may run
# Python code, and no garbage collector may run destructors.

cdef enum:
    ASK_ANOTHER_THREAD = -1


cdef int _operation(unsigned long long tag, unsigned long long *label) noexcept nogil:
    """Two numbers for the operation that is being handed over on a stream of ours."""
    cdef own_suspect current
    if not own_current(engine, tag, &current):
        return False
    label[0] = <uint64_t>current.operation.site << 32 \
        | <uint64_t>current.operation.operation << 8 | current.kind
    label[1] = current.number
    return True


cdef int _describe_operation(
    const unsigned long long *label, char *text, int size
) noexcept nogil:
    return _describe(label, 0, text, size)


cdef int _describe_memory(unsigned long long address, char *text, int size) noexcept nogil:
    return _describe(NULL, address, text, size)


cdef int _describe(
    const unsigned long long *label, CUdeviceptr address, char *text, int size
) noexcept nogil:
    cdef int length
    if cudadrv_table.ending:
        return 0
    if PyGILState_GetThisThreadState() is NULL:
        return ASK_ANOTHER_THREAD
    with gil:
        length = _write_words(label, address, text, size)
    return length


cdef int _write_words(
    const unsigned long long *label, CUdeviceptr address, char *text, int size
) noexcept:
    cdef PyObject *error = NULL
    cdef PyObject *value = NULL
    cdef PyObject *traceback = NULL
    cdef bint collecting = PyGC_Disable()
    cdef const char *encoded
    cdef Py_ssize_t length = 0
    PyErr_Fetch(&error, &value, &traceback)  # the call may be a destructor's
    try:
        words_found = label_at(address) if label is NULL else (
            f"{operation_name((label[0] >> 8) & 0xffff)} on"
            f" {stream_name(label[1], label[0] & 0xff)}, queued at {place(label[0] >> 32)}")
        if words_found is not None:
            encoded = PyUnicode_AsUTF8AndSize(words_found, &length)
            length = min(length, size)
            memcpy(text, encoded, length)
    except Exception:
        length = 0
    PyErr_Restore(error, value, traceback)
    if collecting:
        PyGC_Enable()
    return length


words.operation = _operation
words.describe_operation = _describe_operation
words.describe_memory = _describe_memory


# ---- reap ----

def reap():
    """Free the memory of buffers that have died, waiting for its users as needed.

    Buffers that die while the GPU may use them, or while freeing could block, are kept until the
    GPU is idle, or by pools for new buffers; this waits instead, and empties the pools. Idle
    page-locked memory of the library's own is freed too.
    Where the default stream of another thread used such memory, that is for all work of all
    contexts, and is left out while a stream is being captured. ``close()`` a buffer to free it at
    a point that you choose.

    Driver functions: cuEventRecord, cuEventQuery, cuMemFree, cuMemFreeHost, cuMemFreeAsync;
    cuCtxSynchronize for what the default stream of another thread used.
    """
    cdef Context context
    ensure_driver()
    for context in contexts():
        if not context.lost:
            make_room(context)
            drop_idle_stages(context)
    trim_caches()
    drain(True)


# ---- buffers ----

cdef str ABSTRACT = "use DeviceBuffer, LockedBuffer or UnifiedBuffer"


cdef class Buffer(Region):
    """Buffer(*args, **kwargs)\n--\n
    Items of one dtype, one after the other, in memory that the GPU can use.

    The base of `DeviceBuffer`, `LockedBuffer` and `UnifiedBuffer`.

    Attributes
    ----------
    count, itemsize, nbytes : int
        Number of items, bytes of one, bytes of all.
    dtype : numpy.dtype
    name : str or None
        For messages.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError(ABSTRACT)

    @classmethod
    def from_array(cls, array, *, stream=None, **options):
        """A new buffer with a copy of an array's items, complete on return.

        ``stream`` is that of `copy_from`, and for a DeviceBuffer also that of its allocation; the
        other options are those of the class. Anything that ``numpy.asarray`` takes is an array.
        """
        stream = known_stream(stream)
        array = plain_array(array)
        buffer = _new(cls, array.size, array.dtype, stream, options)
        buffer.copy_from(array, stream=stream)
        return buffer

    @classmethod
    def zeros(cls, count, dtype="u1", *, stream=None, **options):
        """A new buffer whose bytes are all zero, complete on return. Options as `from_array`."""
        stream = known_stream(stream)
        buffer = _new(cls, count, dtype, stream, options)
        buffer.view("u1").fill(0, stream=stream)
        return buffer

    @classmethod
    def from_raw(cls, address, count, dtype="u1", *, device=None, name=None):
        """Take ownership of memory from `into_raw`, or of another library; it is freed here.

        Raises ValueError if the driver does not know the address as memory of this class, or if a
        live buffer owns it.

        Driver function: cuPointerGetAttribute.
        """
        cdef Buffer buffer = _bare(cls)
        buffer.adopt(address, count, dtype, context_of(device), name, None, True)
        return buffer

    @classmethod
    def from_address(cls, address, count, dtype="u1", *, owner=None, device=None, name=None):
        """Use memory of another library, which is never freed here.

        ``owner`` is kept alive with the buffer. What others do with the memory is not seen.

        Raises ValueError if the driver does not know the address as memory of this class.

        Driver function: cuPointerGetAttribute.
        """
        cdef Buffer buffer = _bare(cls)
        buffer.adopt(address, count, dtype, context_of(device), name, owner, False)
        return buffer

    @property
    def stream_ordered(self):
        """Whether its memory was allocated on a stream (``stream=``): closing it is work, too."""
        return self.memory is not None and self.memory.kind == STREAM_ORDERED

    # ---- copies and fills ----

    def copy_from(self, source not None, *, stream=None):
        """Copy into this buffer; blocks, and is complete on return.

        It runs on the given stream, else on the current stream, else on one of the library's own
        that knows only what the host knows: then this buffer must have no unfinished work.

        Parameters
        ----------
        source : buffer, or object with the buffer protocol
            Of the same dtype and number of items. An array of any number of dimensions counts as
            flat, in C order.
        stream : Stream, optional

        Raises
        ------
        TypeError, ValueError
            Other dtype, size, device or kind of object; parts that overlap; a wrong setting.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/errors.md.

        Ordinary memory goes through page-locked memory of the library's own; for large arrays by up
        to 8 threads, or ``CUDADRV_COPY_THREADS``. After Ctrl-C the array is not touched any more,
        and this buffer stays borrowed until what was queued is known to be complete.

        Driver functions: cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuMemcpyDtoDAsync or cuMemcpyAsync;
        cuEventRecord and cuEventQuery; cuMemHostAlloc.
        """
        stream = known_stream(stream)
        if isinstance(source, Buffer):
            copy_and_wait(COPY_FROM, self, source, stream)
            return
        self.usable()
        array = array_of(source, self)
        found = stream_for(stream, self.memory.context)
        if self.nbytes == 0:
            if found is not None:
                found.usable()
        elif found is not None or not self.copy_in_on_host(array):
            copy_array(COPY_FROM, self, array, blocking_stream(found, self))

    def copy_to(self, target not None, *, stream=None):
        """Copy this buffer's items out; blocks, and is complete on return.

        As `copy_from`, in the other direction. A target in ordinary memory must be writable and
        C-contiguous; one that was used before is faster than one whose pages have yet to be found.
        """
        stream = known_stream(stream)
        if isinstance(target, Buffer):
            copy_and_wait(COPY_TO, target, self, stream)
            return
        self.usable()
        array = target_array(target, self)
        found = stream_for(stream, self.memory.context)
        if self.nbytes == 0:
            if found is not None:
                found.usable()
        elif found is not None or not self.copy_out_on_host(array):
            copy_array(COPY_TO, self, array, blocking_stream(found, self))

    def copy_from_async(self, source not None, stream=None):
        """Queue a copy into this buffer; does not wait for it.

        Both buffers stay borrowed until the copy is known to be complete. From ordinary memory a
        snapshot is taken in the call, and the source is free on return. A copy between two
        page-locked buffers blocks in the driver.

        Parameters
        ----------
        source : buffer, or object with the buffer protocol
            As for `copy_from`.
        stream : Stream
            May be left out inside a ``with stream:`` block.

        Returns
        -------
        Token

        Raises
        ------
        As `copy_from`; TypeError without a stream.

        Driver functions: as `copy_from`, without waiting.
        """
        if likely(is_region(source)):
            return copy_async(COPY_FROM_ASYNC, self, <Buffer>source, stream, "copy_from_async")
        stream = known_stream(stream)
        self.usable()
        array = array_of(source, self)
        found = required_stream(stream, self, "copy_from_async")
        if self.nbytes == 0:
            return nothing_to_do(COPY_FROM_ASYNC, found, None, self)
        return copy_array(COPY_FROM_ASYNC, self, array, found)

    def copy_to_async(self, target not None, stream=None):
        """Queue a copy of this buffer's items into another buffer; does not wait for it.

        As `copy_from_async`, in the other direction. Ordinary memory cannot be locked, so it is a
        TypeError here: use a LockedBuffer, or the blocking `copy_to`.
        """
        if unlikely(not is_region(target)):
            raise TypeError(
                f"copy_to_async cannot write to {type(target).__name__}: nothing would keep that"
                " memory as it is until the copy is complete. Copy to a LockedBuffer, or use the"
                " blocking copy_to")
        return copy_async(COPY_TO_ASYNC, <Buffer>target, self, stream, "copy_to_async")

    def fill(self, value, *, stream=None):
        """Set every item to a value; blocks, and is complete on return.

        Parameters
        ----------
        value : scalar
            What the dtype can hold without a change of kind (no float for integers).
        stream : Stream, optional
            As for `copy_from`.

        Raises
        ------
        TypeError, ValueError
            The dtype cannot hold the value; its items have not 1, 2, 4 or 8 bytes, or begin at an
            odd address.

        Driver functions: cuMemsetD8Async, D16, D32; cuMemsetD2D32Async twice for 8 bytes.
        """
        cdef Token token
        cdef unsigned char[8] item
        stream = known_stream(stream)
        self.usable()
        set_item(item, value, self)
        found = stream_for(stream, self.memory.context)
        if not (found is None and self.fill_on_host(item[:self.itemsize])):
            token = fill_region(FILL, self, item, blocking_stream(found, self))
            token.wait()

    def fill_async(self, value, stream=None):
        """Queue a fill; does not wait for it. Returns a Token. See `fill` and `copy_from_async`."""
        cdef unsigned char[8] item
        set_item(item, value, self)
        return fill_region(
            FILL_ASYNC, self, item, required_stream(stream, self, "fill_async"))

    # ---- who uses it ----

    @property
    def borrowed(self):
        """Whether any GPU use of it is not known to be complete.

        It asks the clocks and never the driver, so a loop that waits for it never ends: wait with
        `Stream.synchronize`, `Token.wait` or `Event.synchronize`.
        """
        return bool(borrows_of(self))

    @property
    def borrows(self):
        """The GPU uses that are not known to be complete, as a tuple of `Borrow`."""
        return borrows_of(self)

    def explain(self):
        """Say in text who uses the buffer, and what would release it."""
        return explain_region(self)

    # ---- lifetime ----

    def close(self, stream=None):
        """End the buffer. Its memory goes to the pool, or is freed. Closing twice does nothing.

        Stream-ordered memory is given back after the work of its stream, or of ``stream``. Freeing
        what is not pooled may block, as the driver does; the pool's does not.

        Raises
        ------
        BufferBorrowedError, BufferExportedError
            It is in use. It stays as it is.
        ValueError
            It is a part: only the whole can be closed.

        Driver functions: cuMemFree, cuMemFreeHost or cuMemFreeAsync.
        """
        stream = known_stream(stream)
        if self.closed:
            return
        self._refuse_part()
        self.memory.close(stream_for(stream, None),
                          policy_in_force(self.policy, self.memory.context.policy))
        drain(False)

    def __enter__(self):
        """``with buffer:`` closes it at the end of the block."""
        self.usable()
        self._refuse_part()
        return self

    def __exit__(self, kind, exception, traceback):
        """Close the buffer; if that fails and an exception is on its way, that gets a note."""
        close_at_end(self, exception, "buffer")

    def take(self):
        """Move: give a new object for the same memory, and end the use of this one.

        Parts, views and pending work stay valid and counted.
        """
        cdef Region moved
        self.usable()
        moved = self.share(self.start, self.count, self.dtype)
        moved.part = self.part
        site = here()
        self.usable()  # another thread may have taken it meanwhile; from here on none gets in
        self.move_out(site)
        return moved

    def into_raw(self):
        """Give the memory away: returns its address, and the caller must free it.

        ``from_raw`` takes it back. Raises BufferBorrowedError or BufferExportedError while it is in
        use or a part of it is alive, and ValueError for a part or for memory of `from_address`.
        """
        cdef object address  # made before nobody else knows it
        self.usable()
        self._refuse_part()
        address = pointer_of(self)
        site = here()
        self.memory.give_away()
        self.move_out(site)
        return address

    def lend(self, stream=None, *, bint readonly=False):
        """``with buffer.lend(stream) as address:`` hand it to a library that cudadrv cannot see.

        Inside the block that library may use the memory, at the ``int`` that is given, in work that
        it queues on the stream (``stream.handle``). What it queues counts as one use, queued where
        the block ends: later users have to be ordered after it, as after any operation. It runs
        after all work that the stream is ordered after. Inside the block nobody else may use the
        buffer: operations of other streams, and the host, are refused, and the stream cannot be
        closed. Where the end of the block cannot be recorded, the buffer stays lent.
        Does not block.

        Parameters
        ----------
        stream : Stream
            May be left out inside a ``with stream:`` block.
        readonly : bool, optional
            Whether the library only reads: then others may read as well.

        Returns
        -------
        Loan

        Raises
        ------
        TypeError, ValueError
            No stream; a closed one; one of another device, for a DeviceBuffer.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            By the ``with`` line: see docs/errors.md.

        Driver function: cuEventRecord, where the block begins and where it ends.
        """
        stream = known_stream(stream)
        self.usable()
        found = required_stream(stream, self, "lend")
        refuse_other_device(self, found)
        return new_loan(self, found, readonly)

    def __repr__(self):
        name = f" {self.name!r}" if self.name is not None else ""
        if self.closed:
            return f"<{type(self).__name__}{name} {'moved' if self.moved else 'closed'}>"
        dtype = dtype_name(self.dtype)
        return f"<{type(self).__name__}{name} {self.count} x {dtype}{state_of(self)}>"

    def _refuse_part(self):
        if self.part:
            raise ValueError(f"{self.describe()} is a part; only the whole can be closed or given"
                             " away")

    # ---- what host-readable buffers do without the GPU, when no stream is named ----

    cdef bint fill_on_host(self, bytes item) except -1:
        return False

    cdef bint copy_in_on_host(self, array) except -1:
        return False

    cdef bint copy_out_on_host(self, array) except -1:
        return False


cdef Buffer _bare(cls):
    """A buffer without memory yet, of a class that says which memory it is."""
    if cls.__init__ is Buffer.__init__:
        raise TypeError(ABSTRACT)
    return cls.__new__(cls)


cdef object _new(cls, count, dtype, stream, options):
    """A buffer of a class; only device memory can be stream-ordered."""
    cdef Buffer bare = _bare(cls)
    if stream is not None and bare.kind == DEVICE:
        options = {**options, "stream": stream}
    return cls(count, dtype, **options)
