"""Buffer: what DeviceBuffer, LockedBuffer and UnifiedBuffer have in common."""

import operator

import numpy as np

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

from cudadrv._context cimport Context, default_context
from cudadrv._copy cimport copy_between, copy_stream, finish, required_stream
from cudadrv._fill cimport fill_region, item_bytes
from cudadrv._operation_names cimport (
    COPY_FROM, COPY_FROM_ASYNC, COPY_TO, COPY_TO_ASYNC, FILL, FILL_ASYNC,
)
from cudadrv._ordinary cimport array_of, target_array
from cudadrv._region cimport Region, checked_dtype
from cudadrv._release cimport drain, internal_stream
from cudadrv._report cimport borrows_of, explain_region
from cudadrv._site cimport here
from cudadrv._staging cimport copy_in, copy_in_async, copy_out
from cudadrv._stream cimport Stream, stream_for
from cudadrv._token cimport Token

cdef enum Way:
    INWARD
    OUTWARD
    ASYNC


cdef class Buffer(Region):
    """Items of one dtype, one after the other, in memory that the GPU can use.

    The base of `DeviceBuffer`, `LockedBuffer` and `UnifiedBuffer`.

    Attributes
    ----------
    count, itemsize, nbytes : int
        Number of items, bytes of one, bytes of all.
    dtype : numpy.dtype
    name : str or None
        For messages.
    """

    stream_ordered = False  # whether new ones take ``stream=``

    def __init__(self):
        raise TypeError("use DeviceBuffer, LockedBuffer or UnifiedBuffer")

    @classmethod
    def from_array(cls, array, *, stream=None, **options):
        """A new buffer with a copy of an array's items, complete on return.

        ``stream`` is that of `copy_from`, and for a DeviceBuffer also that of its allocation; the
        other options are those of the class. Anything that ``numpy.asarray`` takes is an array.
        """
        array = np.asarray(array)
        buffer = _new(cls, array.size, array.dtype, stream, options)
        buffer.copy_from(array, stream=stream)
        return buffer

    @classmethod
    def zeros(cls, count, dtype="u1", *, stream=None, **options):
        """A new buffer whose bytes are all zero, complete on return. Options as `from_array`."""
        buffer = _new(cls, count, dtype, stream, options)
        buffer.view("u1").fill(0, stream=stream)
        return buffer

    @classmethod
    def from_raw(cls, address, count, dtype="u1", *, device=None, name=None):
        """Take ownership of memory from `into_raw`, or of another library; it is freed here.

        Raises ValueError if the driver does not know the address as memory of this class.

        Driver function: cuPointerGetAttribute.
        """
        cdef Buffer buffer = cls.__new__(cls)
        buffer.adopt(address, count, dtype, buffer_context(device), name, None, True)
        return buffer

    @classmethod
    def from_address(cls, address, count, dtype="u1", *, owner=None, device=None, name=None):
        """Use memory of another library, which is never freed here.

        ``owner`` is kept alive with the buffer. What others do with the memory is not seen.

        Raises ValueError if the driver does not know the address as memory of this class.

        Driver function: cuPointerGetAttribute.
        """
        cdef Buffer buffer = cls.__new__(cls)
        buffer.adopt(address, count, dtype, buffer_context(device), name, owner, False)
        return buffer

    # ---- copies and fills ----

    def copy_from(self, source not None, *, stream=None):
        """Copy into this buffer; blocks, and is complete on return.

        It runs on the given stream, else on the current stream, else on one of the library's own that
        knows only what the host knows: then this buffer must have no unfinished work.

        Parameters
        ----------
        source : buffer, or object with the buffer protocol
            Of the same dtype and number of items. An array of any number of dimensions counts as
            flat, in C order.
        stream : Stream, optional

        Raises
        ------
        TypeError, ValueError
            Other dtype, size, device or kind of object; parts that overlap.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/ownership.md.

        Driver functions: cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuMemcpyDtoDAsync or cuMemcpyAsync;
        cuEventRecord and cuEventQuery. Ordinary memory goes through page-locked memory.
        """
        if isinstance(source, Region):
            _copy_and_wait(COPY_FROM, self, source, stream)
            return
        self.usable()
        array = array_of(source, self)
        found = stream_for(stream, self.memory.context)
        if self.nbytes and not (found is None and self.copy_in_on_host(array)):
            _with_bytes(self, array, found, INWARD)

    def copy_to(self, target not None, *, stream=None):
        """Copy this buffer's items out; blocks, and is complete on return.

        As `copy_from`, in the other direction. A target in ordinary memory must be writable and
        C-contiguous.
        """
        if isinstance(target, Region):
            _copy_and_wait(COPY_TO, target, self, stream)
            return
        self.usable()
        array = target_array(target, self)
        found = stream_for(stream, self.memory.context)
        if self.nbytes and not (found is None and self.copy_out_on_host(array)):
            _with_bytes(self, array, found, OUTWARD)

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
        if isinstance(source, Region):
            return copy_between(COPY_FROM_ASYNC, self, source, _required(
                stream, self, source, "copy_from_async"))
        self.usable()
        array = array_of(source, self)
        found = required_stream(stream, self, "copy_from_async")
        if self.nbytes == 0:
            return self.copy_from_async(self, found)
        return _with_bytes(self, array, found, ASYNC)

    def copy_to_async(self, target not None, stream=None):
        """Queue a copy of this buffer's items into another buffer; does not wait for it.

        As `copy_from_async`, in the other direction. Ordinary memory cannot be locked, so it is a
        TypeError here: use a LockedBuffer, or the blocking `copy_to`.
        """
        if not isinstance(target, Region):
            raise TypeError(
                f"copy_to_async cannot write to {type(target).__name__}: nothing would keep that"
                " memory as it is until the copy is complete. Copy to a LockedBuffer, or use the"
                " blocking copy_to")
        return copy_between(COPY_TO_ASYNC, target, self, _required(
            stream, target, self, "copy_to_async"))

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
            The dtype cannot hold the value; its items have not 1, 2, 4 or 8 bytes.

        Driver functions: cuMemsetD8Async, D16, D32; cuMemsetD2D32Async twice for 8 bytes.
        """
        cdef Token token
        self.usable()
        item = item_bytes(value, self.dtype)
        found = stream_for(stream, self.memory.context)
        if found is None and self.fill_on_host(item):
            return
        if found is None:
            found = internal_stream(self.memory.context)
        token = fill_region(FILL, self, item, found)
        token.wait()

    def fill_async(self, value, stream=None):
        """Queue a fill; does not wait for it. Gives a Token. See `fill` and `copy_from_async`."""
        self.usable()
        return fill_region(FILL_ASYNC, self, item_bytes(value, self.dtype),
                           required_stream(stream, self, "fill_async"))

    # ---- parts ----

    def __getitem__(self, key):
        """``buffer[a:b]``: a part, which shares the memory and borrows only its own bytes."""
        if not isinstance(key, slice):
            raise TypeError(
                f"{type(self).__name__} has no access to single items from the host; copy what you"
                " need: buffer[i:i + 1].copy_to(array)")
        start, stop = self._slice(key)
        self.usable()
        return self.share(self.start + start * self.itemsize, stop - start, self.dtype)

    def split_at(self, index):
        """Two disjoint parts, before and from an item: they can be used on two streams at once.

        Raises ValueError if the index is not within the buffer.
        """
        at = operator.index(index)
        if not 0 <= at <= self.count:
            raise ValueError(f"cannot split {self.count} items at {at}")
        return self[:at], self[at:]

    def chunks(self, count):
        """Disjoint parts of ``count`` items each, in order; the last may be shorter."""
        size = operator.index(count)
        if size < 1:
            raise ValueError(f"chunks need at least 1 item each, not {size}")
        return [self[at:at + size] for at in range(0, self.count, size)]

    def view(self, dtype):
        """The same bytes as items of another dtype.

        Raises ValueError if offset or size do not divide into such items, or are not aligned.
        """
        wanted = checked_dtype(dtype)
        self.usable()
        if self.nbytes % wanted.itemsize:
            raise ValueError(f"{self.nbytes} bytes are no whole number of {wanted} items"
                             f" ({wanted.itemsize} bytes each)")
        if self.start % wanted.alignment:
            raise ValueError(f"{self.describe()} starts at byte {self.start}, and {wanted} needs a"
                             f" multiple of {wanted.alignment}")
        return self.share(self.start, self.nbytes // wanted.itemsize, wanted)

    def _slice(self, key):
        start, stop, step = key.indices(self.count)
        if step != 1:
            raise ValueError(f"a part is contiguous: the step of a slice must be 1, not {step}")
        return start, max(start, stop)

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
        """Free the memory. Closing twice does nothing. May block, as the driver does.

        Stream-ordered memory is freed after the work of its stream, or of ``stream``.

        Raises
        ------
        BufferBorrowedError, BufferExportedError
            It is in use. It stays as it is.
        ValueError
            It is a part: only the whole can be closed.

        Driver functions: cuMemFree, cuMemFreeHost or cuMemFreeAsync.
        """
        if self.closed:
            return
        if self.part:
            raise ValueError(f"{self.describe()} is a part; close the whole buffer instead")
        self.memory.close(stream_for(stream, None))
        drain(False)

    def __enter__(self):
        self.usable()
        return self

    def __exit__(self, kind, exception, traceback):
        try:
            self.close()
        except Exception as error:
            if exception is None:
                raise
            exception.add_note(f"cudadrv: leaving the block did not close the buffer: {error}")

    def take(self):
        """Move: give a new object for the same memory, and end the use of this one.

        Parts, views and pending work stay valid and counted.
        """
        cdef Region moved
        self.usable()
        moved = self.share(self.start, self.count, self.dtype)
        moved.part = self.part
        self.moved_at = here()
        self.moved = True
        return moved

    def into_raw(self):
        """Give the memory away: returns its address, and the caller must free it.

        ``from_raw`` takes it back. Raises BufferBorrowedError or BufferExportedError while it is in
        use, and ValueError for a part.
        """
        self.usable()
        if self.part:
            raise ValueError(f"{self.describe()} is a part; only the whole can be given away")
        address = self.pointer()
        self.memory.give_away()
        self.moved_at = here()
        self.moved = True
        return address

    def __repr__(self):
        name = f" {self.name!r}" if self.name is not None else ""
        if self.closed:
            return f"<{type(self).__name__}{name} closed>"
        state = ", borrowed" if self.borrowed else ""
        return f"<{type(self).__name__}{name} {self.count} x {self.dtype}{state}>"

    # ---- what host-readable buffers do without the GPU, when no stream is named ----

    cdef bint fill_on_host(self, bytes item) except -1:
        return False

    cdef bint copy_in_on_host(self, array) except -1:
        return False

    cdef bint copy_out_on_host(self, array) except -1:
        return False


cdef Stream _required(stream, Region target, Region source, str method):
    return required_stream(stream, source if target.host_side else target, method)


cdef int _copy_and_wait(int name, Region target, Region source, stream) except -1:
    cdef Token token
    found = copy_stream(stream, target, source)
    if found is None:
        found = internal_stream((source if target.host_side else target).memory.context)
    token = copy_between(name, target, source, found)
    token.wait()
    return 0


cdef Token _with_bytes(Region region, array, Stream stream, Way way):
    """Copy between a buffer and an array through page-locked memory."""
    cdef Py_buffer view
    cdef Token token = None
    if stream is None:
        stream = internal_stream(region.memory.context)
    flat = array.reshape(-1).view(np.uint8)
    PyObject_GetBuffer(flat, &view, PyBUF_WRITABLE if way == OUTWARD else PyBUF_SIMPLE)
    try:
        if way == INWARD:
            copy_in(region, <const char *>view.buf, region.nbytes, stream)
        elif way == OUTWARD:
            copy_out(region, <char *>view.buf, region.nbytes, stream)
        else:
            token = copy_in_async(region, <const char *>view.buf, region.nbytes, stream)
    finally:
        PyBuffer_Release(&view)
    return token


cdef object _new(cls, count, dtype, stream, options):
    """A buffer of a class; only device memory can be stream-ordered."""
    if stream is not None and cls.stream_ordered:
        options = {**options, "stream": stream}
    return cls(count, dtype, **options)


cdef Context buffer_context(object device):
    """Where a new buffer goes: the device's primary context, else the current one."""
    return default_context() if device is None else device.context
