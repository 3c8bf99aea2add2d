"""HostBuffer: what LockedBuffer and UnifiedBuffer add: the host can see their bytes.

Every way to the bytes is a borrow for as long as it can be used, and every borrow is an export of
the memory that the engine knows (`open_view`).
"""

import operator

import numpy as np

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_FillInfo,
    PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdlib cimport free, malloc
from libc.string cimport memmove

from cudadrv._buffer cimport Buffer
from cudadrv._missing cimport missing_waits
from cudadrv._ownership cimport (
    OWN_MUST_WAIT, OWN_OK, OWN_READ, OWN_WRITE, engine, own_access, own_ask_host, own_clock,
    own_conflict, own_export, own_export_close, own_export_open,
)
from cudadrv._ordinary cimport plain_array
from cudadrv._refusal cimport refuse_host
from cudadrv._region cimport borrow, pointer_of
from cudadrv._site cimport here


cdef struct HostRequest:
    own_access *access
    own_conflict *conflict


cdef struct Exported:
    own_export view
    Py_ssize_t shape
    Py_ssize_t stride


cdef class HostBuffer(Buffer):
    """HostBuffer()\n--\n
    A buffer whose bytes the host can read and write: `LockedBuffer` or `UnifiedBuffer`.

    The buffer protocol works: ``memoryview(buffer)`` and ``numpy.asarray(buffer)`` borrow it for as
    long as the result lives. Consumers ask for read-only memory even when they will write, so such
    a view excludes all GPU work; that of ``buffer.readonly()`` excludes only GPU writes.
    """

    # ---- items and slices: borrowed while the call runs ----

    def __getitem__(self, key):
        """__getitem__($self, key, /)\n--\n
        ``buffer[i]``: an item, copied to the host. ``buffer[a:b]``: a part of the buffer.

        Raises BufferBorrowedError for an item that unfinished GPU work may write.
        """
        if isinstance(key, slice):
            return self.part_of(key)
        return (<HostBuffer>self._item(key)).to_numpy()[0]

    def __setitem__(self, key, value):
        """__setitem__($self, key, value, /)\n--\n
        ``buffer[i] = value`` and ``buffer[a:b] = array``, with NumPy's casting and broadcasting.

        Raises BufferBorrowedError for items that unfinished GPU work may use.
        """
        cdef HostBuffer part
        part = self.part_of(key) if isinstance(key, slice) else self._item(key)
        if isinstance(value, Buffer):
            raise TypeError("copy between buffers with copy_from: buffer[a:b].copy_from(source)")
        # All conversion comes before the borrow: it can run other code.
        if isinstance(value, np.ndarray):
            value = plain_array(value)
        if not (type(value) is np.ndarray and value.dtype == part.dtype
                and value.shape == (part.count,)):
            items = np.empty(part.count, part.dtype)
            items[...] = value
            value = items
        part.copy_in_on_host(value)

    def to_numpy(self):
        """The items, copied into a new array of shape ``(count,)``.

        Raises BufferBorrowedError while unfinished GPU work may write them.
        """
        self.usable()
        array = np.empty(self.count, self.dtype)
        self.copy_out_on_host(array)
        return array

    # ---- views: borrowed while they live ----

    def read(self):
        """``with buffer.read() as array:`` a read-only array, for the length of the block.

        GPU work may read meanwhile. At the end the array and its plain views are emptied; if
        something else still refers to the memory, such as a memoryview of the array, leaving raises
        BufferExportedError, and the buffer stays borrowed until that is gone.

        Raises BufferBorrowedError while unfinished GPU work may write it.
        """
        from cudadrv._host_view import host_view
        self.usable()
        return host_view(self, True)

    def write(self):
        """``with buffer.write() as array:`` a writable array, for the length of the block.

        As `read`, and no GPU work may use the buffer meanwhile.
        """
        from cudadrv._host_view import host_view
        self.usable()
        return host_view(self, False)

    def readonly(self):
        """An object that exports the same bytes read-only, and so shares them with GPU reads."""
        self.usable()
        return ReadOnly(self)

    def __array__(self, dtype=None, copy=None):
        """``numpy.asarray(buffer)``: an array over the bytes, which borrows them while it lives.

        NumPy comes here when the buffer protocol refuses: for a dtype that it has no format for, or
        because the memory is in use. NumPy would otherwise copy item by item.
        """
        return _array_over(self, False, dtype, copy)

    def __bytes__(self):
        """``bytes(buffer)``: a copy, whatever the dtype."""
        return bytes(memoryview(self.view("u1")))

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.export(view, flags, False, self)

    def __releasebuffer__(self, Py_buffer *view):
        _release(view)

    cdef int export(self, Py_buffer *view, int flags, bint shared, object exporter) except -1:
        """Fill in a view for the buffer protocol, and borrow for it."""
        self.usable()
        typed = self.item_format() != b""
        if not typed and flags & PyBUF_FORMAT:  # NumPy comes to `__array__` then
            raise BufferError(
                f"the buffer protocol has no format for items of dtype {self.dtype}; make a"
                " memoryview of the bytes: memoryview(buffer.view('u1'))")
        cdef Exported *exported = <Exported *>malloc(sizeof(Exported))
        if exported is NULL:
            raise MemoryError()
        try:
            self.open_view(&exported.view, "read" if shared else "export")
        except BaseException:
            free(exported)
            raise
        exported.stride = self.itemsize if typed else 1
        exported.shape = self.count if typed else self.nbytes
        view.buf = <void *><size_t>pointer_of(self)
        view.obj = exporter
        view.len = self.nbytes
        view.itemsize = exported.stride
        view.readonly = shared
        view.ndim = 1
        view.format = <char *>self.format if flags & PyBUF_FORMAT else NULL
        view.shape = &exported.shape if flags & PyBUF_ND else NULL
        view.strides = &exported.stride if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = exported
        return 0

    cdef bytes item_format(self):
        """How the buffer protocol spells the dtype; b"" where it cannot."""
        if self.format is None:
            try:
                view = memoryview(np.empty(0, self.dtype))
                same = np.asarray(view).dtype == self.dtype
                self.format = view.format.encode() if same else b""
            except (ValueError, BufferError, RuntimeError):
                self.format = b""
        return self.format

    # ---- borrowing for the host ----

    cdef int open_view(self, own_export *view, str verb) except -1:
        """Borrow all bytes to "read", "write" or "export" them, waiting if the policy says so."""
        cdef own_access access
        cdef own_conflict conflict
        cdef HostRequest request = HostRequest(&access, &conflict)
        borrow(self, &access, OWN_READ if verb == "read" else OWN_WRITE)
        while True:
            answer = own_export_open(engine, &access, here(), view, &conflict)
            if answer == OWN_OK:
                return 0
            works = None
            if answer == OWN_MUST_WAIT:
                works = missing_waits(&conflict, _still_in_the_way, &request)
            if works is None:
                return refuse_host(answer, &conflict, verb, self.describe())
            for work in works:
                work.synchronize()

    cdef bint fill_on_host(self, bytes item) except -1:
        items = np.frombuffer(item, f"u{len(item)}")  # so that NumPy also copies padding
        return self.copy_in_on_host(np.broadcast_to(items, self.count))

    cdef bint copy_in_on_host(self, array) except -1:
        return _copy(self, array, True)

    cdef bint copy_out_on_host(self, array) except -1:
        return _copy(self, array, False)

    def _item(self, key):
        try:
            index = operator.index(key)
        except TypeError:
            raise TypeError(f"indices are integers or slices, not {type(key).__name__}") from None
        if not -self.count <= index < self.count:
            raise IndexError(f"item {index} of {self.count}")
        index %= self.count
        return self.part_of(slice(index, index + 1))


cdef bint _copy(HostBuffer buffer, array, bint inward) except -1:
    """Copy between a buffer and an array on the host, which may share memory."""
    cdef Py_buffer view
    cdef own_export export
    cdef void *ours = <void *><size_t>pointer_of(buffer)
    if buffer.nbytes == 0:
        return True
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    PyObject_GetBuffer(flat, &view, PyBUF_SIMPLE if inward else PyBUF_WRITABLE)
    try:
        if <size_t>view.len != buffer.nbytes:
            raise ValueError(f"{buffer.describe()} has {buffer.nbytes} bytes, and the array has"
                             f" {view.len}: it was changed meanwhile")
        buffer.open_view(&export, "write" if inward else "read")
        with nogil:
            if inward:
                memmove(ours, view.buf, view.len)
            else:
                memmove(view.buf, ours, view.len)
        own_export_close(engine, &export)
    finally:
        PyBuffer_Release(&view)
    return True


cdef int _still_in_the_way(void *request, own_clock *waited) noexcept nogil:
    cdef HostRequest *asked = <HostRequest *>request
    return own_ask_host(engine, asked.access, waited, asked.conflict)


cdef void _release(Py_buffer *view) noexcept:
    cdef Exported *exported = <Exported *>view.internal
    own_export_close(engine, &exported.view)
    free(exported)


cdef object _array_over(HostBuffer buffer, bint shared, object dtype, object copy):
    """The array that ``__array__`` of a buffer returns: over its memory unless it has to copy."""
    buffer.usable()
    if dtype is not None and np.dtype(dtype) != buffer.dtype:
        if copy is False:
            raise ValueError(f"the items are {buffer.dtype}: other ones need a copy")
        return buffer.to_numpy().astype(dtype)
    array = np.ndarray(buffer.count, buffer.dtype, Borrowed(buffer, shared))
    return array.copy() if copy else array


@cython.final
@cython.no_gc_clear
cdef class Borrowed:
    """The bytes of a buffer, borrowed by the host for as long as this object lives."""

    def __cinit__(self, HostBuffer buffer not None, bint shared):
        self.buffer = buffer
        self.shared = shared
        self.first = <void *><size_t>pointer_of(buffer)
        buffer.open_view(&self.view, "read" if shared else "export")
        self.open = True

    def __dealloc__(self):
        if self.open:
            own_export_close(engine, &self.view)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.first, self.buffer.nbytes, self.shared, flags)


@cython.final
cdef class ReadOnly:
    """ReadOnly(buffer)\n--\n
    What ``buffer.readonly()`` gives: the same bytes, exported shared and read-only."""

    cdef HostBuffer buffer

    def __cinit__(self, HostBuffer buffer not None):
        self.buffer = buffer

    def __array__(self, dtype=None, copy=None):
        """``numpy.asarray(buffer.readonly())``: a read-only array over the bytes."""
        return _array_over(self.buffer, True, dtype, copy)

    def __bytes__(self):
        """``bytes(buffer.readonly())``: a copy, whatever the dtype."""
        return bytes(memoryview(ReadOnly(self.buffer.view("u1"))))

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("this export is read-only; export the buffer itself to write")
        self.buffer.export(view, flags, True, self)

    def __releasebuffer__(self, Py_buffer *view):
        _release(view)

    def __repr__(self):
        return f"<read-only export of {self.buffer!r}>"
