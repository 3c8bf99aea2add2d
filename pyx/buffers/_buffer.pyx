# cython: nonecheck=True
"""Buffer: the base of the three kinds of buffers, reports of who uses a buffer, and `reap`."""

import sys
from importlib import import_module

import numpy as np

from cpython.pystate cimport PyThreadState
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cudadrv._closing cimport make_room
from cudadrv._copy cimport (
    blocking_stream, copy_and_wait, copy_async, nothing_to_do, required_stream,
)
from cudadrv._device cimport Context, attend, context_of, contexts
from cudadrv._driver cimport CUdeviceptr, cudadrv_table, likely, unlikely, words
from cudadrv._engine cimport (
    OWN_BORROWED, OWN_HAS_DISCARDS, OWN_HELD, OWN_OK, OWN_REACH, OWN_READ, OWN_SHARED, OWN_WAIT,
    OWN_WRITE, engine, own_access, own_borrow, own_borrows, own_bytes_of, own_conflict, own_current,
    own_discard, own_discarded, own_held, own_memory_end, own_next_held, own_obstacle, own_suspect,
)
from cudadrv._errors cimport close_at_end, hint, refuse_if_forked
from cudadrv._foreign cimport return_to_owner
from cudadrv._library cimport ensure_driver
from cudadrv._dlpack cimport exchange_capsule
from cudadrv._fill cimport fill_region, set_item
from cudadrv._loan cimport (
    ON_NOTHING, ON_STREAM, dlpack_device_of, export_region, new_loan, note_write,
)
from cudadrv._memory cimport (
    closed_state, described_at, described_closed, stay_home, use_on_host,
)
from cudadrv._names cimport (
    COPY_FROM, COPY_FROM_ASYNC, COPY_TO, COPY_TO_ASYNC, FILL, FILL_ASYNC, GIVE_BACK, graph_name,
    host_wait, operation_name, stream_name,
)
from cudadrv._ordering cimport policy_in_force
from cudadrv._peers cimport refuse_other_context
from cudadrv._pool cimport is_cached, trim_caches
from cudadrv._refusal cimport excluding_work, refuse_close, view_end, view_line
from cudadrv._region cimport (
    Region, aim_at, copy_layout, dtype_name, is_region, of_present_size, plain_array, pointer_of,
)
from cudadrv._release cimport drain, internal_stream
from cudadrv._sharing cimport accept_region, is_opened, return_opened, settle_shares, share_region
from cudadrv._site cimport here, place as line_at
from cudadrv._staging cimport array_of, copy_array, drop_idle_stages, target_array
from cudadrv._stream cimport known_stream, stream_for
from cudadrv._token cimport Token

from cudadrv._errors import BufferExportedError, ForkedError
from cudadrv._sharing import drop_idle_events

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


cdef tuple borrows_of(Region region):
    """Return all GPU uses of a region that are not known to be complete, as a tuple of `Borrow`."""
    listed, _, _ = _look(region, 0xffffffff)
    return tuple(listed)


cdef tuple _look(Region region, unsigned int most):
    """Return the first `most` borrows, the number of all borrows, and texts that say how to wait.

    Each text is listed once. The texts are only about the borrows that are returned.
    """
    cdef own_borrow *found
    cdef own_access access
    cdef unsigned int count
    cdef unsigned int i
    if region.memory is None or region.nbytes == 0:
        return [], 0, []
    refuse_if_forked()  # before any lock is taken
    aim_at(region, &access)
    count = own_borrows(engine, region.memory.state, own_bytes_of(&access), NULL, 0)
    if count == 0:
        return [], 0, []
    most = min(count, most)
    found = <own_borrow *>malloc(most * sizeof(own_borrow))
    if found is NULL:
        raise MemoryError()
    try:
        count = own_borrows(engine, region.memory.state, own_bytes_of(&access), found, most)
        borrows, ways = [], {}
        for i in range(min(count, most)):
            borrows.append(_borrow(&found[i], region.start))
            ways[_wait(found[i].number, found[i].kind)] = None
        return borrows, count, list(ways)
    finally:
        free(found)


cdef object _borrow(own_borrow *found, size_t start):
    from cudadrv._records import Borrow
    return Borrow(
        MODES[found.epoch.mode],
        stream_name(found.number, found.kind), operation_name(found.epoch.operation),
        line_at(found.epoch.site), found.start - start, found.stop - start)


cdef str state_of(Region region):
    """Return the end of a buffer's `repr`: ", read by Stream 2", or "" if nothing uses it."""
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
    """Return the lines of a message about what blocks access to the region besides its borrows.

    Such an obstacle is a host view, a loan, or other work that excludes the host from managed
    memory. Returns "" if there is none. Appends to `ways` how to end the view, loan or work.
    """
    cdef own_conflict conflict
    cdef own_access access
    aim_at(region, &access)
    answer = own_obstacle(engine, region.memory.context.domain, region.memory.state,
                          own_bytes_of(&access), &conflict)
    if answer == OWN_OK:
        return ""
    if answer == OWN_BORROWED:
        ways.append(_wait(conflict.number, conflict.kind))
        return excluding_work(&conflict)
    ways.append(f"{view_end(&conflict)}.")
    return view_line(&conflict)


cdef str explain_region(Region region):
    if region.moved:
        return f"{region.describe()} was moved at {line_at(region.moved_at)}."
    if region.closed:
        return f"{region.describe()} is closed."
    ways = []
    obstacle = _obstacle(region, ways)
    borrows, count, waits = _look(region, MOST_LINES)
    more = _discarded(region) + _graphs(region)
    if not borrows and not obstacle:
        return f"{region.describe()} is free: no GPU work that uses it may be unfinished." \
            + more
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
    return "\n".join(lines + ways) + more


cdef str _discarded(Region region):
    """Return a line about the first discarded bytes, or "" if there are none."""
    cdef own_discard found
    cdef own_access access
    cdef size_t stop = region.start + region.nbytes
    aim_at(region, &access)
    if not region.memory.state.limited & OWN_HAS_DISCARDS or not own_discarded(
            engine, region.memory.state, own_bytes_of(&access), &found):
        return ""
    first, last = max(found.start, region.start), min(found.stop, stop)
    return f"\nThe contents of its bytes {first - region.start}:{last - region.start} were" \
           f" discarded at {line_at(found.site)}."


cdef str _graphs(Region region):
    """Return a line about each graph that keeps the buffer from being closed."""
    cdef own_conflict conflict
    cdef uint64_t last = 0
    cdef str text = ""
    cdef str line
    while own_next_held(engine, region.memory.state, region.start, region.start + region.nbytes,
                        last, &conflict):
        last = conflict.number
        line = f"\nIt cannot be closed before {graph_name(last)}, which uses it in" \
               f" {operation_name(conflict.epoch.operation)} at {line_at(conflict.site)}."
        if line not in text:    # the lines of a graph and of its executables can be equal
            text += line
    return text


cdef str _wait(uint64_t number, int kind):
    return f"Release it with: {host_wait(number, kind)}."


# ---- what the software driver asks, for its reports of data races ----
#
# The software driver calls `_operation` during a driver call, and the `_describe` functions at the
# end of a driver call. They run in the thread that made the driver call, which may hold issue
# locks. So these functions must not run Python code, and they disable the garbage collector,
# because it could run destructors.

cdef enum:
    ASK_ANOTHER_THREAD = -1


cdef int _operation(unsigned long long tag, unsigned long long *label) noexcept nogil:
    """Set `label` to the operation that is being queued on the stream with this tag.

    Returns False if no operation is being queued on it.
    """
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
    return _describe(label, 0, False, text, size)


cdef int _describe_memory(unsigned long long address, char *text, int size) noexcept nogil:
    return _describe(NULL, address, False, text, size)


cdef int _describe_freed(unsigned long long address, char *text, int size) noexcept nogil:
    return _describe(NULL, address, True, text, size)


cdef int _describe(
    const unsigned long long *label, CUdeviceptr address, bint freed, char *text, int size
) noexcept nogil:
    cdef int length
    if cudadrv_table.ending:
        return 0
    if PyGILState_GetThisThreadState() is NULL:
        return ASK_ANOTHER_THREAD
    with gil:
        length = _write_words(label, address, freed, text, size)
    return length


cdef int _write_words(
    const unsigned long long *label, CUdeviceptr address, bint freed, char *text, int size
) noexcept:
    cdef PyObject *error = NULL
    cdef PyObject *value = NULL
    cdef PyObject *traceback = NULL
    cdef bint collecting = PyGC_Disable()
    cdef const char *encoded
    cdef Py_ssize_t length = 0
    # If a destructor made the driver call, an exception may be propagating, and must be kept.
    PyErr_Fetch(&error, &value, &traceback)
    try:
        if label is not NULL:
            words_found = (
                f"{operation_name((label[0] >> 8) & 0xffff)} on"
                f" {stream_name(label[1], label[0] & 0xff)}, queued at {line_at(label[0] >> 32)}")
        else:
            words_found = None if freed else described_at(address)
            # Memory that a pool keeps is not freed, although its last buffer is closed.
            if words_found is None and (freed or is_cached(address, 1)):
                words_found = described_closed(address)
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
words.describe_freed = _describe_freed


# ---- reap ----

def reap():
    """Free the memory of dropped and closed buffers. Blocks until all work that uses it is done.

    When a buffer is dropped, its memory goes to a pool for new buffers, or is kept until freeing it
    cannot block. This call empties the pools, waits for the work that uses such memory, and frees
    the memory. It also frees the page-locked memory through which arrays are copied, as far as no
    copy uses it. A `DriverPool` is not trimmed.

    Memory that the default stream of another thread used is freed after waiting for all work of all
    contexts, or kept if a stream is being captured. To free the memory of one buffer at a point
    that you choose, ``close()`` the buffer.

    Signals such as Ctrl-C interrupt the wait. Raises ContextLostError if an error has lost a
    context, and the wait finds that error; OwnershipError if the wait would never end, because
    another process has ended before its work was complete.

    Driver functions: cuEventRecord, cuEventQuery, cuMemFree, cuMemFreeHost, cuMemFreeAsync;
    cuCtxSynchronize for memory that the default stream of another thread used.
    """
    cdef Context context
    ensure_driver()
    for context in contexts():
        if not context.lost:
            make_room(context)
            drop_idle_stages(context)
            drop_idle_events(context)
    trim_caches()
    drain(True)


# ---- buffers ----

cdef str ABSTRACT = "use DeviceBuffer, LockedBuffer or UnifiedBuffer"


cdef class ExchangeTable:
    """The attribute ``__dlpack_c_exchange_api__``, which consumers written in C look up in a class.

    Its value is a table of functions. Importing `_exchange` fills the table. `import cudadrv` does
    not import `_exchange`, so the first use of the attribute does.
    """

    def __get__(self, instance, kind):
        import_module("cudadrv._exchange")
        return exchange_capsule


cdef class Buffer(Region):
    """Buffer(*args, **kwargs)\n--\n
    Contiguous items of one dtype, in memory that the GPU can use.

    The base of `DeviceBuffer`, `LockedBuffer` and `UnifiedBuffer`.

    Attributes
    ----------
    count, itemsize, nbytes : int
        Number of items, bytes of one item, bytes of all items.
    dtype : numpy.dtype
    name : str or None
        Shown in messages.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError(ABSTRACT)

    @classmethod
    def from_array(cls, array, *, stream=None, **options):
        """Make a buffer with a copy of an array's items. Blocks until the copy is complete.

        ``array`` is anything that ``numpy.asarray`` takes. The buffer gets the shape of the array.
        ``stream`` is passed to the class and to `Buffer.copy_from`, and the other options to the
        class.

        Raises what the class and `Buffer.copy_from` raise.
        """
        cdef Buffer buffer
        stream = known_stream(stream)
        array = plain_array(array)
        buffer = _new(cls, array.size, array.dtype, stream, options)
        if array.ndim > 1:
            buffer.sizes = array.shape
        buffer.copy_from(array, stream=stream)
        return buffer

    @classmethod
    def zeros(cls, count, dtype="u1", *, stream=None, **options):
        """Make a buffer whose bytes are all zero. Blocks until the fill is complete.

        ``stream`` and the options: see `from_array`. Raises what the class and `Buffer.fill` raise.
        """
        stream = known_stream(stream)
        buffer = _new(cls, count, dtype, stream, options)
        buffer.view("u1").fill(0, stream=stream)
        return buffer

    @classmethod
    def from_raw(cls, address, count, dtype="u1", *, device=None, name=None):
        """Take ownership of memory, from `into_raw` or another library; the buffer will free it.

        ``address`` is an int, ``count`` the number of items. The memory belongs to the primary
        context of ``device``; default: the current context. Does not block.

        Raises ValueError if the driver does not know the address as memory of this class, or if
        the memory belongs to another buffer, or to a dropped buffer and is not freed yet.

        Driver function: cuPointerGetAttribute.
        """
        cdef Buffer buffer = _bare(cls)
        buffer.adopt(address, count, dtype, context_of(device), name, None, True)
        return buffer

    @classmethod
    def from_address(cls, address, count, dtype="u1", *, owner=None, device=None, name=None):
        """Make a buffer over memory of another library. cudadrv never frees this memory.

        ``address`` is an int, ``count`` the number of items. ``owner`` is kept alive with the
        buffer. cudadrv does not see the work that others do with the memory. Does not block.

        Raises ValueError if the driver does not know the address as memory of this class.

        Driver function: cuPointerGetAttribute.
        """
        cdef Buffer buffer = _bare(cls)
        buffer.adopt(address, count, dtype, context_of(device), name, owner, False)
        return buffer

    @property
    def stream_ordered(self):
        """Whether the memory was allocated on a stream, and is freed on one: device memory that was
        made with ``stream=``, and all memory of a `DriverPool`.
        """
        return self.memory is not None and self.memory.kind.ordered

    # ---- copies and fills ----

    def copy_from(self, source not None, *, stream=None):
        """Copy into this buffer. Blocks until the copy is complete.

        The copy runs on the given stream, else on the current stream, else on an internal stream.
        The internal stream is ordered only after work that the host knows to be complete, so the
        copy must not conflict with other work. If there is neither a given nor a current stream,
        the host itself copies an array into a LockedBuffer or UnifiedBuffer. A copy between two
        devices runs on a stream of either, and needs no access (`Device.enable_access`).

        Parameters
        ----------
        source : Buffer, or object with the buffer protocol
            Of the same dtype and number of items. An array of any number of dimensions counts as
            flat, in C order.
        stream : Stream, optional

        Raises
        ------
        TypeError, ValueError
            The dtype, size, device or kind of the source does not fit; the parts overlap;
            ``CUDADRV_COPY_THREADS`` is not valid.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/errors.md.
        CudaError
            A driver call failed.

        Arrays are copied through page-locked memory of the library, large ones by up to 12 threads
        (environment variable ``CUDADRV_COPY_THREADS``). After Ctrl-C the array is not touched any
        more, and this buffer stays borrowed until the queued work is known to be complete.

        Driver functions: cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuMemcpyDtoDAsync, cuMemcpyAsync, or
        cuMemcpyPeerAsync between contexts; cuEventRecord and cuEventQuery; cuMemHostAlloc.
        """
        cdef Buffer whole
        stream = known_stream(stream)
        if isinstance(source, Buffer):
            copy_and_wait(COPY_FROM, self, source, stream)
            return
        self.usable()
        whole = of_present_size(self)   # other threads may let the buffer grow during the copy
        array = array_of(source, whole)
        found = stream_for(stream, self.memory.context)
        if whole.nbytes == 0:
            if found is not None:
                found.usable()
        elif found is not None or not whole.copy_in_on_host(array):
            copy_array(COPY_FROM, whole, array, blocking_stream(found, whole))

    def copy_to(self, target not None, *, stream=None):
        """Copy this buffer's items to a target. Blocks until the copy is complete.

        This is `copy_from` in the other direction. A target array must be writable and
        C-contiguous. A new array is slower than one that was used before, because its pages must be
        mapped first.
        """
        cdef Buffer whole
        stream = known_stream(stream)
        if isinstance(target, Buffer):
            copy_and_wait(COPY_TO, target, self, stream)
            return
        self.usable()
        whole = of_present_size(self)
        array = target_array(target, whole)
        found = stream_for(stream, self.memory.context)
        if whole.nbytes == 0:
            if found is not None:
                found.usable()
        elif found is not None or not whole.copy_out_on_host(array):
            packed = np.ascontiguousarray(array)    # only a box is copied to an array with gaps
            copy_array(COPY_TO, whole, packed, blocking_stream(found, whole))
            if packed is not array:
                array[...] = packed

    def copy_from_async(self, source not None, stream=None):
        """Queue a copy into this buffer. Does not wait for it.

        Both buffers stay borrowed until the copy is known to be complete. The items of an array are
        copied to page-locked memory within the call, so the array may change after it. A copy
        between two page-locked buffers blocks in the driver.

        Parameters
        ----------
        source : Buffer, or object with the buffer protocol
            As for `copy_from`.
        stream : Stream, optional
            Default: the current stream of a ``with stream:`` block; without one, a TypeError.

        Returns
        -------
        Token

        Raises
        ------
        TypeError
            There is no stream. `copy_from` lists the other errors.

        Driver functions: those of `copy_from` that do not wait.
        """
        if likely(is_region(source)):
            return copy_async(COPY_FROM_ASYNC, self, <Buffer>source, stream, "copy_from_async")
        stream = known_stream(stream)
        self.usable()
        whole = of_present_size(self)
        array = array_of(source, whole)
        found = required_stream(stream, whole, "copy_from_async")
        if whole.nbytes == 0:
            refuse_other_context(whole, found)
            return nothing_to_do(COPY_FROM_ASYNC, found, None, whole)
        return copy_array(COPY_FROM_ASYNC, whole, array, found)

    def copy_to_async(self, target not None, stream=None):
        """Queue a copy of this buffer's items into another buffer. Does not wait for it.

        This is `copy_from_async` in the other direction. An array as target raises TypeError,
        because nothing would protect the array until the copy is complete. Copy to a LockedBuffer,
        or use the blocking `copy_to`.
        """
        if unlikely(not is_region(target)):
            raise TypeError(
                f"copy_to_async cannot write to {type(target).__name__}: nothing would keep that"
                " memory as it is until the copy is complete. Copy to a LockedBuffer, or use the"
                " blocking copy_to")
        return copy_async(COPY_TO_ASYNC, <Buffer>target, self, stream, "copy_to_async")

    def fill(self, value, *, stream=None):
        """Set every item to a value. Blocks until the fill is complete.

        Parameters
        ----------
        value : scalar
            A value that the dtype can hold without a change of kind. For example, an integer dtype
            does not accept a float. 0 sets all bytes to 0, whatever the dtype is.
        stream : Stream, optional
            As for `copy_from`. If there is neither a given nor a current stream, the host itself
            fills a LockedBuffer or UnifiedBuffer.

        Raises
        ------
        TypeError, ValueError
            The dtype cannot hold the value; an item does not have 1, 2, 4, 8, 12 or 16 bytes; the
            buffer is not aligned to its items, or to 4 bytes for items of 8 or more. If all bytes
            of the item are equal, as in 0, its size and the alignment do not matter.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/errors.md.
        CudaError
            A driver call failed.

        Driver functions: cuMemsetD8Async, cuMemsetD16Async or cuMemsetD32Async; cuMemsetD2D32Async
        once for each 4 bytes of items of 8, 12 or 16 bytes whose words of 4 bytes differ, and
        cuMemcpyDtoDAsync if the buffer is large; for boxes cuMemsetD2D8Async, cuMemsetD2D16Async
        and cuMemcpy2DAsync, too.
        """
        cdef Token token
        cdef unsigned char[16] item
        stream = known_stream(stream)
        self.usable()
        set_item(item, value, self)
        found = stream_for(stream, self.memory.context)
        if not (found is None and self.fill_on_host(item)):
            token = fill_region(FILL, self, item, blocking_stream(found, self))
            token._finish()

    def fill_async(self, value, stream=None):
        """Queue a fill. Does not wait for it. Returns a Token.

        Parameters, errors and driver functions are as for `fill`; ``stream`` is as for
        `copy_from_async`.
        """
        cdef unsigned char[16] item
        set_item(item, value, self)
        return fill_region(
            FILL_ASYNC, self, item, required_stream(stream, self, "fill_async"))

    def to(self, place, *, bint copy=False, kind=None, stream=None):
        """Return a buffer with the same items that can be used at a place: this one or a new one.

        The result has the default kind of the place: a UnifiedBuffer stays one, and its pages are
        moved; otherwise it is a DeviceBuffer for a device, and a LockedBuffer for the host. If this
        buffer is of that kind and at the place, it is the result. Otherwise a new buffer gets a
        copy of the items, with the shape and the name.

        Without ``stream`` the call blocks until the result can be used. The move or copy runs on
        the current stream, else on an internal one, as for `copy_from`. With ``stream`` the move or
        copy is queued on that stream, and counts as a write of the result: until the work of the
        stream is known to be complete (``stream.synchronize()``), the host cannot use the result,
        and other streams have to be ordered after it. A move counts as a write even if the driver
        moves pages only when they are used. If nothing is moved or copied, nothing is ordered.

        Parameters
        ----------
        place : Device or str
            A device, or ``"host"``; for managed memory also ``"host:N"``, the NUMA node N.
        copy : bool, optional
            Whether the result is a new buffer in any case.
        kind : "device", "locked" or "unified", optional
            The kind of the result.
        stream : Stream, optional
            A stream of the buffer's context; for a copy to another device also one of that device.

        Returns
        -------
        DeviceBuffer, LockedBuffer or UnifiedBuffer

        Raises
        ------
        TypeError, ValueError
            There is no such place or kind; the kind cannot be at the place; the stream belongs to
            another context; see also `UnifiedBuffer.prefetch`.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/errors.md.
        CudaError
            A driver call failed.

        Driver functions: cuMemPrefetchAsync for managed memory; else those of the class of the
        result and of `copy_from` with a buffer.
        """
        return self.moved_to(place, copy, kind, stream)

    # ---- who uses the buffer ----

    @property
    def borrowed(self):
        """Whether any GPU work that uses the buffer is not known to be complete.

        The answer never comes from the driver, so a loop that only polls this property never ends:
        wait with `Stream.synchronize`, `Token.wait` or `Event.synchronize`.
        """
        attend()
        return bool(borrows_of(self))

    @property
    def borrows(self):
        """The GPU uses of the buffer that are not known to be complete: a tuple of `Borrow`.

        The work that another library queues during a loan appears here when the loan has ended.
        """
        attend()
        return borrows_of(self)

    def explain(self):
        """Return a text that says who uses the buffer, and what would release it."""
        attend()
        return explain_region(self)

    # ---- lifetime ----

    def close(self, stream=None):
        """Close the buffer: its memory goes to its pool, or is freed. Closing twice does nothing.

        Stream-ordered memory is released after the work of its stream, or of ``stream``. Memory
        that is neither pooled nor stream-ordered is freed when the device is idle: signals such as
        Ctrl-C interrupt this wait, and then the buffer stays open. Otherwise this does not block.

        Raises
        ------
        BufferBorrowedError, BufferExportedError
            The buffer is in use. It stays open.
        ValueError
            The buffer is a part of another buffer: only the whole can be closed. Or ``stream`` is
            given, and the memory is not stream-ordered or belongs to another context.

        Driver functions: cuMemFree, cuMemFreeHost or cuMemFreeAsync.
        """
        stream = known_stream(stream)
        if self.closed:
            return
        self._refuse_part()
        if self.memory.loans:
            settle_shares()
            if self.memory.context.lost:    # lost imports in the queue may still keep loans
                drain(False)
        self.memory.close(stream_for(stream, None),
                          policy_in_force(self.policy, self.memory.context.policy))
        drain(False)

    def __enter__(self):
        """``with buffer:`` closes it at the end of the block."""
        self.usable()
        self._refuse_part()
        return self

    def __exit__(self, kind, exception, traceback):
        """Close the buffer.

        If closing fails while an exception propagates, a note is added to that exception.
        """
        close_at_end(self, exception, "buffer")

    def take(self):
        """Return a new buffer object that takes over the memory. This object is then unusable.

        Parts, host views and unfinished work stay valid. Raises BufferClosedError if this buffer is
        closed or was moved before.
        """
        self.usable()
        if self.memory.growth is None or self.part:
            return _taken(self)
        memory = self.memory
        memory.growth.begin("move", memory.label)
        try:
            moved = _taken(self)
        finally:
            memory.growth.end()
        return moved

    def into_raw(self):
        """Give the memory away: return its address, an int. The caller has to free the memory.

        `from_raw` takes it back. Does not block. Raises BufferBorrowedError or BufferExportedError
        while the buffer is in use or a part of it is alive, and ValueError for a part, for memory
        of a `DriverPool`, and for memory of another library (`from_address`, `from_dlpack`).
        """
        cdef object address  # made before the move, because a later failure would lose the memory
        self.usable()
        self._refuse_part()
        if self.memory.unused:
            use_on_host(self.memory)
        address = pointer_of(self)
        site = here()
        self.memory.give_away()
        self.move_out(site)
        return address

    def lend(
        self, stream=..., *, shape=None, strides=None, bint readonly=False, device=None
    ):
        """Lend the buffer to another library, whose work cudadrv does not see.

        ``with buffer.lend(stream) as address:`` lends the buffer for the block. Inside the block
        the library may use the memory at ``address``, an int, in work that it queues on the stream
        (``stream.handle``). ``cupy.asarray(buffer.lend(stream))`` and
        ``from_dlpack(buffer.lend(stream))`` lend the buffer for as long as the library keeps the
        array.

        The library's work runs after all work that the stream is ordered after. When the loan ends,
        the work that the library has queued counts as one operation on the stream. Later users of
        the buffer have to be ordered after it, as after any operation. During the loan only the
        stream itself may use the buffer: operations of other streams and accesses of the host are
        refused, and the stream cannot be closed. If the end of the loan cannot be recorded, the
        buffer stays lent. Does not block.

        Parameters
        ----------
        stream : Stream or None
            The stream on which the library queues its work. May be left out inside a
            ``with stream:`` block. None means that the library's work is not on a stream, such as
            the work of MPI. Then all conflicting work has to be known to be complete.
        shape, strides : tuple of int, optional
            The shape of the array that the library gets, and its strides in bytes. Default: those
            of the buffer, in C order.
        readonly : bool, optional
            Whether the library only reads the buffer. Then others may read it, too.
        device : "cuda" or "cpu", optional
            How DLPack describes the memory: as memory of the device, or of the host. Default: as
            what it is, device, page-locked or managed memory.

        Returns
        -------
        Loan

        Raises
        ------
        TypeError, ValueError
            There is no stream; the stream is closed; for a DeviceBuffer, it belongs to another
            context.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            Raised when the loan begins, by the ``with`` line or by the call that makes the array:
            see docs/errors.md.

        Driver function: cuEventRecord at the beginning and at the end, only on a blocking stream.
        """
        if stream is not ...:
            stream = known_stream(stream)
        self.usable()
        if stream is None:
            return new_loan(self, None, ON_NOTHING, readonly, shape, strides, device)
        found = required_stream(None if stream is ... else stream, self, "lend")
        refuse_other_context(self, found)
        return new_loan(self, found, ON_STREAM, readonly, shape, strides, device)

    def give_back(self, stream=...):
        """End the use of another library's array, or of another process's buffer.

        The stream waits for all uses of the memory by cudadrv. For an array, work that its owner
        queues on the stream afterwards runs after these uses. DLPack and the CUDA Array Interface
        leave this wait to the consumer. The buffer drops its reference to the array at once. A
        later import of the same bytes waits for the stream. For a buffer of another process, an
        event is recorded on the stream, and the other process takes the buffer back with the
        receipt: `accept`. Does not block.

        Parameters
        ----------
        stream : Stream
            The stream on which the owner of the array works; for a buffer of another process, any.
            May be left out inside a ``with stream:`` block.

        Returns
        -------
        Receipt or None
            A receipt for a buffer that `open` has made. It can be pickled.

        Raises
        ------
        ValueError
            The buffer was not made by `from_dlpack`, `from_cuda_array` or `open`; it is a part of
            such a buffer; or parts of it are alive.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            The buffer is lent itself, or in use in a way that the stream cannot wait for; or the
            process that has shared it has ended.

        Driver functions: cuEventRecord, cuStreamWaitEvent.
        """
        self.usable()
        self._refuse_part()
        if self.memory.home is None or self.memory.regions > 1:
            raise ValueError(f"{self.describe()} cannot be given back: " + (
                "it is no other library's or process's" if self.memory.home is None else
                f"parts of it are alive ({self.memory.regions - 1}); drop them first"))
        _refuse_lent(self)
        found = required_stream(None if stream is ... else stream, self, "give_back")
        if is_opened(self.memory):
            return return_opened(self, found)
        memory = self.memory
        closed = closed_state(memory)
        try:
            note_write(self, found, GIVE_BACK, OWN_WAIT)
            if memory.loans:    # another thread has lent the memory meanwhile
                stay_home(memory)
                _refuse_lent(self)
        except BaseException:
            own_memory_end(closed)
            raise
        return_to_owner(memory, closed)

    # ---- other processes ----

    def share(self, stream=...):
        """Lend the buffer to another process: return a ticket, which that process can `open` once.

        Work that the other process queues runs after all work that ``stream`` has now. Until the
        buffer is back, this process can neither use nor close it. It is back when `accept` has
        taken the receipt of ``give_back(stream)`` in the other process. Does not block.

        The ticket can be pickled, and is for a process of this machine and this user. Buffers can
        also be passed directly as arguments of a process of ``multiprocessing``, and by its pipes
        and queues: then they are shared on a stream that waits for all work on them.

        Parameters
        ----------
        stream : Stream
            The stream whose work comes first. May be left out inside a ``with stream:`` block.

        Returns
        -------
        Ticket

        Raises
        ------
        TypeError, ValueError
            There is no stream; it is closed or belongs to another context. Or the memory is of a
            kind that processes cannot share: managed or stream-ordered memory, a LockedBuffer that
            is not ``shareable``, memory of another library.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/errors.md.

        Driver functions: cuEventRecord; at first cuIpcGetMemHandle, cuEventCreate and
        cuIpcGetEventHandle.
        """
        stream = known_stream(None if stream is ... else stream)
        self.usable()
        return share_region(self, required_stream(stream, self, "share"), False)

    def accept(self, receipt=None, stream=None):
        """Take back a buffer that was lent to another process by `share`.

        With a receipt, ``stream`` waits for the last work of the other process. The call counts as
        a write on ``stream``, so other uses have to be ordered after it. Without a receipt, the
        buffer is taken back in three cases: the ticket was not opened yet, and cannot be opened any
        more; the other process has given the buffer back, or has dropped it; or that process has
        ended. Bytes that a process was writing when it ended may be incomplete. Does not block.

        Parameters
        ----------
        receipt : Receipt, optional
            What ``give_back`` returned in the other process.
        stream : Stream, optional
            Default: the current one of a ``with stream:`` block, else the legacy default stream.

        Raises
        ------
        TypeError, ValueError
            The receipt is not for this buffer, or was accepted before; the buffer is not shared;
            the stream is closed or belongs to another context.
        BufferExportedError
            There is no receipt, and another process has the buffer.

        Driver functions: cuStreamWaitEvent.
        """
        accept_region(self, receipt, known_stream(stream))

    def __reduce_ex__(self, protocol):
        """Pass the buffer to another process of ``multiprocessing``. Nothing else can pickle it."""
        if not _is_multiprocessing():
            raise TypeError(
                f"{self.describe()} cannot be pickled: its memory is on a device, or in this"
                " process alone. Pickle buffer.to_numpy(), or lend it to another process:"
                " buffer.share(stream)")
        self.usable()
        from cudadrv._opening import open as opening
        return opening, (share_region(self, internal_stream(self.memory.context), True),)

    # ---- loans that other libraries begin ----

    def __dlpack_device__(self):
        """``(device_type, device_id)`` of DLPack: device, page-locked host or managed memory."""
        return dlpack_device_of(self)

    __dlpack_c_exchange_api__ = ExchangeTable()

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Lend the buffer to another library, whose ``from_dlpack`` calls this.

        The buffer is lent as by `lend`, to the stream on which the library works, until the library
        drops the last array that shares the memory. That stream waits for conflicting work under
        every policy, because the protocol demands this.

        Parameters
        ----------
        stream : int, optional
            The CUstream on which the library works. 1 is the legacy default stream, and 2 the
            default stream of this thread. -1 means that the library names no stream; then all
            conflicting work has to be known to be complete. None lends page-locked memory to the
            host, and other memory to the legacy default stream.
        max_version, dl_device, copy
            See DLPack. A copy is a new buffer.

        Raises
        ------
        BufferError
            DLPack cannot describe the dtype, or the device or version is not supported.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            The buffer is in use, and the stream cannot wait for the end of that use.

        Driver functions: cuEventRecord, cuStreamWaitEvent.
        """
        return export_region(self, stream, max_version, dl_device, copy)

    @property
    def __cuda_array_interface__(self):
        """Not supported. Raises an AttributeError, which names the alternatives.

        Consumers of this protocol never tell when they are done with the memory.
        """
        raise AttributeError(
            "a buffer has no __cuda_array_interface__, because its consumers never say when they"
            " are done: cupy.from_dlpack(buffer), or cupy.asarray(buffer.lend(stream))")

    def __repr__(self):
        name = f" {self.name!r}" if self.name is not None else ""
        if self.closed:
            return f"<{type(self).__name__}{name} {'moved' if self.moved else 'closed'}>"
        dtype = dtype_name(self.dtype)
        return f"<{type(self).__name__}{name} {self.count} x {dtype}{state_of(self)}>"

    def __add__(self, other):
        """__add__($self, value, /)\n--\n
        Raises TypeError for numbers and buffers: buffers have no arithmetic."""
        return _no_arithmetic(self, other, "+")

    def __radd__(self, other):
        """__radd__($self, value, /)\n--\n
        Raises TypeError for numbers and buffers: buffers have no arithmetic."""
        return _no_arithmetic(other, self, "+")

    def __sub__(self, other):
        """__sub__($self, value, /)\n--\n
        Raises TypeError for numbers and buffers: buffers have no arithmetic."""
        return _no_arithmetic(self, other, "-")

    def __rsub__(self, other):
        """__rsub__($self, value, /)\n--\n
        Raises TypeError for numbers and buffers: buffers have no arithmetic."""
        return _no_arithmetic(other, self, "-")

    def __mul__(self, other):
        """__mul__($self, value, /)\n--\n
        Raises TypeError for numbers and buffers: buffers have no arithmetic."""
        return _no_arithmetic(self, other, "*")

    def __rmul__(self, other):
        """__rmul__($self, value, /)\n--\n
        Raises TypeError for numbers and buffers: buffers have no arithmetic."""
        return _no_arithmetic(other, self, "*")

    def __truediv__(self, other):
        """__truediv__($self, value, /)\n--\n
        Raises TypeError for numbers and buffers: buffers have no arithmetic."""
        return _no_arithmetic(self, other, "/")

    def __rtruediv__(self, other):
        """__rtruediv__($self, value, /)\n--\n
        Raises TypeError for numbers and buffers: buffers have no arithmetic."""
        return _no_arithmetic(other, self, "/")

    def _refuse_part(self):
        if self.part:
            raise ValueError(f"{self.describe()} is a part; only the whole can be closed or given"
                             " away")

    # ---- access by the host ----
    #
    # Each function returns False if the host cannot access the memory. HostBuffer overrides them.

    cdef bint fill_on_host(self, const unsigned char *item) except -1:
        return False

    cdef bint copy_in_on_host(self, array) except -1:
        return False

    cdef bint copy_out_on_host(self, array) except -1:
        return False

    # ---- other places: overridden by each kind of buffer ----

    cdef Buffer moved_to(self, object place, bint copy, object kind, object stream):
        raise TypeError(ABSTRACT)


hint(Buffer, {
    "size": "use count for the number of items, nbytes for the number of bytes",
    "ndim": "use len(buffer.shape)",
    "T": "cudadrv does not transpose; CuPy and PyTorch take the buffer by from_dlpack(buffer)",
    "ptr": "use address",
    "data_ptr": "use address",
    "gpudata": "use address",
    "get": "use to_numpy() or copy_to(array)",
    "set": "use copy_from(array)",
    "numpy": "use to_numpy()",
    "copy_to_host": "use to_numpy() or copy_to(array)",
    "copy_to_device": "use copy_from(array)",
    "free": "use close()",
})


cdef object _no_arithmetic(object left, object right, str operator):
    """Return NotImplemented, or raise a TypeError that says which libraries calculate."""
    other = right if isinstance(left, Buffer) else left
    if not isinstance(other, (int, float, complex, Buffer)):
        return NotImplemented   # the other class may know what to do
    raise TypeError(
        f"{type(left).__name__} {operator} {type(right).__name__}: buffers have no arithmetic."
        " Launch a kernel, or let another library calculate in the same memory:"
        " cupy.from_dlpack(buffer), torch.from_dlpack(buffer), or numpy.asarray(buffer) for memory"
        " of the host")


cdef int _refuse_lent(Region region) except -1:
    if region.memory.loans:
        raise BufferExportedError(f"cannot give back {region.describe()}: it is lent itself, and"
                                  " its borrower would keep an array of memory that is gone; end"
                                  " that loan first")
    return 0


cdef Region _taken(Buffer buffer):
    """Do what `Buffer.take` does."""
    cdef Region moved
    cdef own_conflict conflict
    moved = buffer.part_over(buffer.start, buffer.count, buffer.dtype)
    moved.part = buffer.part
    copy_layout(moved, buffer)
    site = here()
    buffer.usable()  # another thread may have moved the buffer; from here on no other thread runs
    if own_held(engine, buffer.memory.state, buffer.start, buffer.start + buffer.nbytes, &conflict):
        refuse_close(OWN_HELD, &conflict, "move", buffer.describe())
    buffer.move_out(site)
    return moved


cdef Buffer _bare(cls):
    """Return a new object of a class, which has no memory yet. Raises TypeError for an abstract
    class.
    """
    if cls.__init__ is Buffer.__init__:
        raise TypeError(ABSTRACT)
    return cls.__new__(cls)


cdef object _new(cls, count, dtype, stream, options):
    """Make a buffer, on the stream if one is given."""
    _bare(cls)
    if stream is not None:
        options = {**options, "stream": stream}
    return cls(count, dtype, **options)


def _is_multiprocessing():
    """Whether the caller's caller is the pickler of multiprocessing.

    Other picklers must not lend buffers. Reducers of multiprocessing cannot be registered when
    cudadrv is imported, because that would import multiprocessing.
    """
    reduction = sys.modules.get("multiprocessing.reduction")
    return reduction is not None and sys._getframe(0).f_globals is vars(reduction)
