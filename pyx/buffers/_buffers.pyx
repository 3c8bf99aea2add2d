"""The three kinds of buffers, and the host's access to the bytes of two of them.

Arrays, memoryviews and other objects through which the host reaches the bytes borrow them for as
long as they live. The engine records each such borrow as an export (`open_view`).

State that outlives a call: whether single items may be used (a context variable).
"""

import collections
import functools
import types

import numpy as np

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_F_CONTIGUOUS, PyBUF_ND,
    PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE,
    PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.ref cimport Py_REFCNT, PyObject
from libc.stdlib cimport free, malloc

from cudadrv._box cimport is_item
from cudadrv._buffer cimport Buffer
from cudadrv._copy cimport blocking_stream, copy_and_wait, copy_async
from cudadrv._device cimport Context, Device, context_of
from cudadrv._driver cimport (
    CU_MEMHOSTALLOC_WRITECOMBINED,
    PyVectorcall_NARGS, exchange_call, tuple_of, unlikely,
)
from cudadrv._errors cimport only_made_by
from cudadrv._fill cimport MOST_BYTES
from cudadrv._guard cimport begin_lift, end_lift, guards, host_may_use, locked_flags
from cudadrv._in_place cimport register_region
from cudadrv._growing cimport (
    allocate_growing, capacity_of, devices_of, grow_region, shrink_region,
)
from cudadrv._managed cimport (
    advice_of, advise_region, attach_region, discard_region, move_region, prefetch_region,
)
from cudadrv._memory cimport use_on_host
from cudadrv._memory_kinds cimport LOCKED, REGISTERED, UNIFIED
from cudadrv._names cimport ALLOCATION, TO
from cudadrv._engine cimport (
    OWN_MAY_ALL, OWN_MAY_READ, OWN_MUST_WAIT, OWN_OK, OWN_READ, OWN_UNCHECKED, OWN_USES, OWN_WRITE,
    engine, own_access, own_ask_host, own_conflict, own_export, own_export_close, own_export_open,
    own_lend_anyway, own_turn, own_turn_begins, own_turn_end,
)
from cudadrv._ordering cimport Nesting
from cudadrv._place cimport check_place
from cudadrv._pool cimport PoolHandle, chosen_pool, driver_pools_used
from cudadrv._refusal cimport refuse_host
from cudadrv._region cimport (
    aim_at, borrow, items_of, lay_over, of_present_size, plain_array, pointer_of,
)
from cudadrv._site cimport here, place as line_at
from cudadrv._staging cimport copy_on_host
from cudadrv._stream cimport Stream, context_for, known_stream, stream_for
from cudadrv._token cimport Token
from cudadrv._waits cimport Question, missing_waits

from cudadrv._errors import BufferExportedError, integer


# ---- single items ----

cdef Nesting _scalar_blocks = Nesting("cudadrv.scalar_access")


@cython.final
cdef class scalar_access:
    """scalar_access(allowed)\n--\n
    Choose, for a `with` block, whether the host may use single items of buffers.

    Inside ``with cu.scalar_access(False):`` reading and writing single items (``buffer[3]``,
    ``buffer[3] = x``, iteration) of a LockedBuffer or UnifiedBuffer raises TypeError. So a loop
    over items, which is slow, becomes a failure at its line. Slices, blocks, copies and arrays work
    as before.

    The choice also applies in the functions that the block calls; new threads start without it. Of
    nested blocks, the one entered last counts. Outside all blocks, ``buffer.scalar_access`` counts.

    Raises TypeError unless the argument is a bool.
    """

    cdef bint allowed
    cdef object __weakref__

    def __cinit__(self, allowed):
        self.allowed = _checked_bool(allowed)

    @property
    def allowed(self):
        """Whether single items may be used in the block."""
        return self.allowed

    def __enter__(self):
        """Begin the block."""
        _scalar_blocks.enter(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """End the block. What was chosen before the block is in force again."""
        _scalar_blocks.leave(self)

    def __repr__(self):
        return f"scalar_access({self.allowed})"


cdef bint _checked_bool(object value) except -1:
    if value is not True and value is not False:
        raise TypeError(f"scalar_access is True or False, and not {value!r}")
    return value


cdef int _check_scalar(HostBuffer buffer) except -1:
    """Raise TypeError where single items may not be used."""
    block = _scalar_blocks.innermost()
    if block is not None:
        where = f"inside {block.thing!r}"
        refused = not (<scalar_access>block.thing).allowed
    else:
        where = "because its scalar_access is False"
        refused = buffer.no_items
    if refused:
        raise TypeError(
            f"{buffer.describe()} has no access to single items {where}. Use many items at once:"
            " a slice (buffer[a:b] = array, buffer[a:b].to_numpy()), or a block (with buffer.read()"
            " as array, with buffer.write() as array)")
    return 0


# ---- what the host can see ----

cdef struct Exported:
    own_export view
    Py_ssize_t *shape       # lies behind the struct
    Py_ssize_t *strides     # lies behind the shape


cdef class HostBuffer(Buffer):
    """HostBuffer()\n--\n
    A buffer whose bytes the host can read and write: `LockedBuffer` or `UnifiedBuffer`.

    It has the buffer protocol: ``memoryview(buffer)`` and ``numpy.asarray(buffer)`` borrow it for
    as long as the result lives. The protocol does not tell whether the consumer will write. So such
    a view excludes all GPU work. A view of ``buffer.readonly()`` excludes only GPU writes.
    """

    @property
    def scalar_access(self):
        """Whether the host may use single items (``buffer[3]``, iteration); default: True.

        False makes such uses raise TypeError, so that a slow loop over items is noticed. Parts made
        later inherit the value. A block of `cudadrv.scalar_access` overrides it. Setting it raises
        TypeError unless the value is a bool.
        """
        return not self.no_items

    @scalar_access.setter
    def scalar_access(self, value):
        self.no_items = not _checked_bool(value)

    # ---- items and slices: borrowed while the call runs ----

    def __getitem__(self, key):
        """__getitem__($self, key, /)\n--\n
        ``buffer[i]``: an item, copied to the host. ``buffer[a:b]``: a part of the buffer.

        An item with fields is read-only, because a change of the copy would be lost:
        ``buffer[i]["x"] = 5`` raises ValueError. Assign a whole item (``item = buffer[i].copy();
        item["x"] = 5; buffer[i] = item``), or change fields of the array of a ``write()`` block.

        Raises BufferBorrowedError for an item that unfinished GPU work may write (the policy "wait"
        waits for that work instead), BufferExportedError for an item that is lent for writing,
        IndexError if there is no such item, and TypeError for an item where `scalar_access` is
        False.
        """
        cdef HostBuffer part = self._at(key)
        if part.sizes != ():
            return part
        array = part.to_numpy()
        if self.dtype.names is not None:
            array.flags.writeable = False   # the item is a view of the array
        return array[()]

    def __setitem__(self, key, value):
        """__setitem__($self, key, value, /)\n--\n
        ``buffer[i] = value`` and ``buffer[a:b] = array``, with NumPy's casting and broadcasting.

        Raises BufferBorrowedError for items that unfinished GPU work may use (the policy "wait"
        waits for that work instead), BufferExportedError for lent ones, IndexError if there is no
        such item, TypeError for an item where `scalar_access` is False, and what NumPy raises for
        the value.
        """
        cdef HostBuffer part = self._at(key)
        shape = part.shape
        if isinstance(value, Buffer):
            raise TypeError("copy between buffers with copy_from: buffer[a:b].copy_from(source)")
        # The value is converted before the bytes are borrowed: the conversion can run other code.
        if isinstance(value, np.ndarray):
            value = plain_array(value)
        if not (type(value) is np.ndarray and value.dtype == part.dtype
                and value.shape == shape):
            items = np.empty(shape, part.dtype)
            items[...] = value
            value = items
        part.copy_in_on_host(value)

    def to_numpy(self):
        """Copy the items into a new array of the buffer's shape.

        Raises BufferBorrowedError while unfinished GPU work may write the items (the policy "wait"
        waits for that work instead), and BufferExportedError while they are lent for writing.
        """
        self.usable()
        array = np.empty(self.shape, self.dtype)
        self.copy_out_on_host(array)
        return array

    # ---- views: borrowed while they live ----

    def read(self):
        """Read in a block: ``with buffer.read() as array:`` is a read-only array over the items.

        GPU work may read the buffer meanwhile. At the end of the block the array and its plain
        views become empty. If something else still refers to the memory, such as a memoryview of
        the array, leaving the block raises BufferExportedError, and the buffer stays borrowed until
        that is gone.

        Entering the block raises BufferBorrowedError while unfinished GPU work may write the buffer
        (the policy "wait" waits for that work instead), and BufferExportedError while it is lent
        for writing.
        """
        self.usable()
        return host_view(self, True)

    def write(self):
        """Write in a block: ``with buffer.write() as array:`` is a writable array over the items.

        Like `read`, but no GPU work may use the buffer meanwhile. Entering the block raises while
        any unfinished GPU work may use the buffer, or while it is lent.
        """
        self.usable()
        return host_view(self, False)

    def readonly(self):
        """Return an object that exports the bytes read-only, so that GPU work may read them, too.
        """
        self.usable()
        return ReadOnly(self)

    def __array__(self, dtype=None, copy=None):
        """``numpy.asarray(buffer)``: an array over the bytes, which borrows them while it lives.

        NumPy calls this if the buffer protocol fails: for a dtype that the protocol has no format
        for, or because the memory is in use. Without this method, NumPy would copy item by item.
        """
        return _array_over(self, False, dtype, copy)

    def __bytes__(self):
        """``bytes(buffer)``: a copy of the bytes, for every dtype."""
        return bytes(memoryview(self.view("u1"))) if self.box is NULL else self.to_numpy().tobytes()

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.export(view, flags, False, self)

    def __releasebuffer__(self, Py_buffer *view):
        _release(view)

    cdef int export(self, Py_buffer *view, int flags, bint shared, object exporter) except -1:
        """Fill in a view of the buffer protocol, and borrow the bytes for it."""
        self.usable()
        typed = self.item_format() != b""
        if not typed and flags & PyBUF_FORMAT:  # NumPy then calls `__array__`
            raise BufferError(
                f"the buffer protocol has no format for items of dtype {self.dtype}; make a"
                " memoryview of the bytes: memoryview(buffer.view('u1'))")
        shape, steps = (self.shape, self.strides) if typed else ((self.nbytes,), (1,))
        if self.box is not NULL and (not typed or flags & PyBUF_STRIDES != PyBUF_STRIDES
                                     or flags & (PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS
                                                 | PyBUF_ANY_CONTIGUOUS) & ~PyBUF_STRIDES):
            raise BufferError(f"the rows of {self.describe()} have gaps between them, and items in"
                              " one piece were asked for; copy it: buffer.to_numpy()")
        if len(shape) > 1 and flags & PyBUF_F_CONTIGUOUS == PyBUF_F_CONTIGUOUS:
            raise BufferError(f"the items of shape {shape} are in C order; Fortran order was asked"
                              " for")
        cdef Exported *exported = _exported(shape, steps)
        try:
            self.open_view(&exported.view, "read" if shared else "export")
        except BaseException:
            free(exported)
            raise
        view.buf = <void *><size_t>pointer_of(self)
        view.obj = exporter
        view.len = self.count * self.itemsize
        view.itemsize = self.itemsize if typed else 1
        view.readonly = shared
        view.ndim = len(shape) if flags & PyBUF_ND else 1
        view.format = <char *>self.format if flags & PyBUF_FORMAT else NULL
        view.shape = exported.shape if flags & PyBUF_ND and shape else NULL
        view.strides = NULL
        if flags & PyBUF_STRIDES == PyBUF_STRIDES and shape:
            view.strides = exported.strides
        view.suboffsets = NULL
        view.internal = exported
        return 0

    cdef bytes item_format(self):
        """Return the dtype's format in the buffer protocol; b"" if it has none."""
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
        """Borrow all bytes. Waits if the policy is "wait".

        `verb` is "read"; "write", for a copy within one call; "block", for a `with` block that
        writes; or "export", for views whose users may read and write.
        """
        cdef own_access access
        cdef own_conflict conflict
        cdef Question question = Question(
            engine, &conflict, NULL, NULL, &access, NULL, NULL)
        cdef bint counted = False
        if unlikely(self.memory.unused):
            use_on_host(self.memory)
        borrow(self, &access, OWN_READ if verb == "read" else OWN_WRITE)
        if verb == "export":
            access.effect = OWN_USES
        while True:
            # The migration is counted before the view opens, so that a failure does not lose the
            # record of discarded bytes.
            if self.kind.managed and not counted:
                counted = _count_turn(self, &access)
            answer = own_export_open(engine, &access, here(), view, &conflict)
            if answer == OWN_OK:
                break
            works = None
            if answer == OWN_MUST_WAIT:
                works = missing_waits(&question)
            if works is None:
                return refuse_host(answer, &conflict, "export" if verb == "block" else verb,
                                   self.describe())
            for work in works:
                work._finish()
        if unlikely(access.policy == OWN_UNCHECKED) and guards():
            host_may_use(access.memory)
        if counted:
            own_turn_end(engine, &access)
        return 0

    cdef bint fill_on_host(self, const unsigned char *item) except -1:
        size = self.itemsize if self.itemsize <= MOST_BYTES else 1  # larger items have equal bytes
        # As integers or as bytes: NumPy then copies padding, too.
        items = np.frombuffer(item[:size], f"{'u' if size in (1, 2, 4, 8) else 'V'}{size}")
        if self.box is not NULL:
            return self.copy_in_on_host(np.broadcast_to(
                np.frombuffer(item[:size] * (self.itemsize // size), self.dtype), self.shape))
        return self.copy_in_on_host(np.broadcast_to(items, self.nbytes // <size_t>size))

    cdef bint copy_in_on_host(self, array) except -1:
        return _copy(self, array, True)

    cdef bint copy_out_on_host(self, array) except -1:
        return _copy(self, array, False)

    cdef Buffer moved_to(self, object place, bint copy, object kind, object stream):
        return _moved_to(self, place, copy, kind, stream)

    cdef HostBuffer _at(self, object key):
        """Return the part that an index names. An item is a part without dimensions."""
        if self.sizes is None and isinstance(key, slice):
            return self.part_of(key)
        if is_item(key, 1 if self.sizes is None else len(self.sizes)):
            _check_scalar(self)
        return self.indexed(key)


cdef bint _count_turn(HostBuffer buffer, own_access *access) except -1:
    """Count a migration of managed memory to the host, if an operation used the memory last, and
    the host may use it now. Returns whether the migration was counted.
    """
    cdef own_conflict conflict
    cdef own_turn turn
    if not own_turn_begins(engine, access, ALLOCATION, &turn) \
            or own_ask_host(engine, access, NULL, &conflict) != OWN_OK:
        return False
    count_migration(buffer, turn.start, turn.stop, turn.last.operation, turn.last.site)
    return True


def count_migration(buffer, start, stop, operation, site):
    """Call `_migrations.count_migration`, which is imported when it is first needed."""
    global count_migration
    from cudadrv._migrations import count_migration
    count_migration(buffer, start, stop, operation, site)


cdef bint _copy(HostBuffer buffer, array, bint inward) except -1:
    """Let the host copy between a buffer and an array, which may overlap."""
    cdef Py_buffer view
    cdef own_export export
    cdef void *ours
    if buffer.nbytes == 0:
        return True
    if buffer.box is not NULL:
        return _copy_box(buffer, array, inward)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    PyObject_GetBuffer(flat, &view, PyBUF_SIMPLE if inward else PyBUF_WRITABLE)
    try:
        if <size_t>view.len != buffer.nbytes:
            raise ValueError(f"{buffer.describe()} has {buffer.nbytes} bytes, and the array has"
                             f" {view.len}: it was changed meanwhile")
        buffer.open_view(&export, "write" if inward else "read")
        ours = <void *><size_t>pointer_of(buffer)
        try:
            copy_on_host(<char *>ours, <char *>view.buf, view.len, inward)
        finally:
            own_export_close(engine, &export)
    finally:
        PyBuffer_Release(&view)
    return True


cdef bint _copy_box(HostBuffer buffer, array, bint inward) except -1:
    """Like `_copy`, for a box and an array of its shape."""
    ours = np.ndarray(buffer.shape, buffer.dtype, Borrowed(buffer, not inward, "block"), 0,
                      buffer.steps)
    if inward:
        np.copyto(ours, np.asarray(array).view(buffer.dtype))
    else:
        np.copyto(array, ours)
    return True


cdef Exported *_exported(tuple shape, tuple steps) except NULL:
    """Make an export, with shape and strides."""
    cdef Py_ssize_t count = len(shape)
    cdef Exported *exported = <Exported *>malloc(
        sizeof(Exported) + 2 * count * sizeof(Py_ssize_t))
    if exported is NULL:
        raise MemoryError()
    exported.shape = <Py_ssize_t *>(exported + 1)
    exported.strides = exported.shape + count
    while count:
        count -= 1
        exported.shape[count], exported.strides[count] = shape[count], steps[count]
    return exported


cdef void _release(Py_buffer *view) noexcept:
    cdef Exported *exported = <Exported *>view.internal
    own_export_close(engine, &exported.view)
    free(exported)


cdef object _array_over(HostBuffer buffer, bint shared, object dtype, object copy):
    """Return the array for ``__array__``: over the buffer's memory, or a copy if one is needed."""
    buffer.usable()
    if dtype is not None and np.dtype(dtype) != buffer.dtype:
        if copy is False:
            raise ValueError(f"the items are {buffer.dtype}: other ones need a copy")
        return buffer.to_numpy().astype(dtype)
    array = np.ndarray(buffer.shape, buffer.dtype, Borrowed(buffer, shared, "export"), 0,
                       buffer.steps)
    return array.copy() if copy else array


@cython.final
@cython.no_gc_clear
cdef class Borrowed:
    """The bytes of a buffer, borrowed by the host for as long as this object lives.

    `verb` says how, as for `open_view`. None: an operation has borrowed the bytes already.
    """

    def __cinit__(self, HostBuffer buffer not None, bint shared, str verb):
        self.buffer = buffer
        self.shared = shared
        if verb is not None:
            buffer.open_view(&self.view, "read" if shared else verb)
            self.open = True
        self.first = <void *><size_t>pointer_of(buffer)

    def __dealloc__(self):
        if self.open:
            own_export_close(engine, &self.view)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.first, self.buffer.nbytes, self.shared, flags)


@cython.final
cdef class ReadOnly:
    """ReadOnly(buffer)\n--\n
    What ``buffer.readonly()`` returns: the same bytes, exported shared and read-only."""

    cdef HostBuffer buffer

    def __cinit__(self, HostBuffer buffer not None):
        self.buffer = buffer

    def __array__(self, dtype=None, copy=None):
        """``numpy.asarray(buffer.readonly())``: a read-only array over the bytes."""
        return _array_over(self.buffer, True, dtype, copy)

    def __bytes__(self):
        """``bytes(buffer.readonly())``: a copy of the bytes, for every dtype."""
        if self.buffer.box is not NULL:
            return bytes(self.buffer)
        return bytes(memoryview(ReadOnly(self.buffer.view("u1"))))

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("this export is read-only; export the buffer itself to write")
        self.buffer.export(view, flags, True, self)

    def __releasebuffer__(self, Py_buffer *view):
        _release(view)

    def __repr__(self):
        return f"<read-only export of {self.buffer!r}>"


# ---- the array of a `with` block ----
#
# `__enter__` returns a view of a hidden array over borrowed memory. In NumPy every plain view of
# that view refers to the hidden array. At the end of the block, each of these arrays is emptied if
# only variables and containers refer to it (`referrers.h`). If something else refers to one of the
# arrays, the memory stays borrowed, because each array keeps the `Borrowed` object alive.

cdef extern from "Python.h":
    ctypedef int (*traverseproc)(PyObject *, void *, void *)
    ctypedef struct PyTypeObject:
        traverseproc tp_traverse
    int PyGC_Disable()
    int PyGC_Enable()


cdef extern from "cudadrv/referrers.h":
    PyTypeObject *ref_ndarray
    traverseproc ref_python_class
    PyObject *ref_containers
    PyObject *ref_capturing
    PyObject *ref_base
    int ref_find(PyObject *hidden, PyObject *array, PyObject *traceback, list found) except -1


class _WrittenInPython:
    pass


cdef object ndarray = np.ndarray
cdef object _set_state = np.ndarray.__setstate__
_CONTAINERS = (
    dict, list, tuple, set, frozenset, type, types.ModuleType, types.SimpleNamespace,
    types.MappingProxyType, types.MethodType, types.BuiltinMethodType, functools.partial,
    collections.deque, collections.OrderedDict, collections.defaultdict, type(iter(np.empty(0))),
)
# An object with one of these attributes may have stored the memory's address, without keeping a
# reference to a view.
_CAPTURING = (
    "__array__", "__array_interface__", "__array_struct__", "__buffer__", "__dlpack__",
    "_as_parameter_",
)
_BASE = "base"
ref_ndarray = <PyTypeObject *>ndarray
ref_python_class = (<PyTypeObject *>_WrittenInPython).tp_traverse
ref_containers = <PyObject *>_CONTAINERS
ref_capturing = <PyObject *>_CAPTURING
ref_base = <PyObject *>_BASE


@cython.final
cdef class HostView:
    """HostView(*args, **kwargs)\n--\n
    A host borrow for the length of a `with` block: see `HostBuffer.read` and `write`."""

    def __enter__(self):
        """Borrow the buffer, and return a NumPy array over its items."""
        if self.array is not None or self.busy:
            raise RuntimeError("this block has been entered already; call read() or write() again")
        self.busy = True    # other threads run while this one waits for work that uses the buffer
        try:
            self.site = here()
            self.buffer.usable()
            self.borrowed = Borrowed(self.buffer, self.shared, "block")
            _make_array(self)
        finally:
            self.busy = False
        return self.array

    def __exit__(self, kind, exception, traceback):
        """End the borrow. The array is empty from now on."""
        if self.array is None:
            raise RuntimeError("this block is not entered, or has ended already")
        borrowed = _end_array(self, traceback)
        if borrowed is not None:
            found = _still_referred_to(
                self, f"the array of the `with` block at {line_at(self.site)}")
            if exception is None:
                raise BufferExportedError(found)
            exception.add_note(f"cudadrv: {found}")


only_made_by(HostView, "use buffer.read() or buffer.write()")


cdef int _make_array(HostView view) except -1:
    """Make the array over the items that `view.borrowed` has borrowed."""
    view.hidden = ndarray(
        view.buffer.shape, view.buffer.dtype, view.borrowed, 0, view.buffer.steps)
    view.array = view.hidden.view()
    return 0


cdef Borrowed _end_array(HostView view, object traceback):
    """End the array. Return what it has borrowed, if something can still reach the memory."""
    try:
        _empty(view, traceback)
    finally:
        view.array = view.hidden = None
        borrowed, view.borrowed = view.borrowed, None
    return borrowed if Py_REFCNT(borrowed) > 1 else None


cdef str _still_referred_to(HostView view, str array):
    return f"{array} is still referred to by something that cannot be emptied with it\n" \
           "  (a memoryview, a masked array, a tensor, a running call)," \
           f" so {view.buffer.describe()} stays borrowed until that is gone.\n" \
           "  Copy what you need to keep: array.copy()"


cdef HostView view_for_function(HostBuffer buffer, bint shared, CUdeviceptr first):
    """Make an array for a function that a stream calls. The operation has borrowed the bytes.

    `first` is the address of the first byte. The buffer itself may have no address any more: it may
    have been closed, or given back, by an operation that is ordered after the call.
    """
    cdef HostView view = host_view(buffer, shared)
    cdef Borrowed borrowed = Borrowed(buffer, shared, None)
    borrowed.first = <void *><size_t>first
    view.borrowed = borrowed
    _make_array(view)
    return view


cdef void lift_guard_of(HostView view) noexcept:
    """Let the function use the bytes, in a guard. `end_view_of_function` has to follow."""
    cdef size_t first = <size_t>(<Borrowed>view.borrowed).first
    if unlikely(guards()) and view.buffer.nbytes:
        view.lift.start, view.lift.stop = first, first + view.buffer.nbytes
        view.lift.right = OWN_MAY_READ if view.shared else OWN_MAY_ALL
        begin_lift(&view.lift)


cdef str end_view_of_function(HostView view, object traceback, str array):
    """End such an array. Return None, or what to tell the program: something can still reach the
    memory, so the host borrows the bytes from now on. `array` is the array's name in messages.
    """
    cdef own_access access
    cdef Borrowed borrowed = view.borrowed
    if unlikely(view.lift.stop):
        end_lift(&view.lift)
    try:
        _end_array(view, traceback)
    except MemoryError:     # then nothing was emptied
        pass
    if Py_REFCNT(borrowed) == 1:
        return None
    aim_at(view.buffer, &access)
    access.mode = OWN_READ if view.shared else OWN_WRITE
    own_lend_anyway(engine, &access, view.site, NULL, &borrowed.view)
    borrowed.open = True
    if unlikely(guards()):
        host_may_use(access.memory)
    return _still_referred_to(view, array)


cdef int _empty(HostView view, object traceback) except -1:
    """Empty the array of a block, and its views to which only variables and containers refer.

    ``array[0]`` raises IndexError from then on.
    """
    cdef list found = []
    cdef int collects = PyGC_Disable()  # no other code may run until all found arrays are empty
    try:
        ref_find(<PyObject *>view.hidden, <PyObject *>view.array, <PyObject *>traceback, found)
        for each in found:
            _set_state(each, (1, (0,), each.dtype, False, b""))
    finally:
        if collects:
            PyGC_Enable()
    return 0


def host_view(HostBuffer buffer not None, bint shared):
    """Return the context manager of `HostBuffer.read` (`shared`) and `HostBuffer.write`."""
    cdef HostView view = HostView.__new__(HostView)
    view.buffer = buffer
    view.shared = shared
    return view


# ---- allocating ----

cdef int _allocate(
    Buffer buffer, object count, object dtype, object stream, object device, unsigned int flags,
    object name, bint pooled
) except -1:
    """Allocate a buffer: on the given stream, else on the current one if `pooled`, else on none."""
    cdef PoolHandle pool = None
    cdef Stream found = known_stream(stream)
    cdef Context context = context_for(found, device)
    if found is None and pooled:
        found = stream_for(None, context)
    if unlikely(driver_pools_used) and pooled:
        pool = chosen_pool(buffer.kind, context)
        if pool is not None and flags & CU_MEMHOSTALLOC_WRITECOMBINED:
            raise ValueError(f"memory of {pool!r} cannot be write-combined; with pooled=False, the"
                             " buffer does not come from it")
    return buffer.allocate(count, dtype, context, found, flags, name, pooled, pool)


cdef int _allocate_shareable(
    Buffer buffer, object count, object dtype, object stream, object device, object name
) except -1:
    """Allocate page-locked memory that other processes can map."""
    cdef Context context = context_for(known_stream(stream), device)
    buffer.kind = REGISTERED
    try:
        buffer.allocate(count, dtype, context, None, 0, name, False, None)
    finally:
        buffer.kind = LOCKED
    return 0


# ---- page-locked memory ----

@cython.final
cdef class LockedBuffer(HostBuffer):
    """LockedBuffer(count, dtype='u1', *, stream=None, write_combined=False, device=None, \
name=None, pooled=True, shareable=False)\n--\n
    Page-locked (pinned) host memory: the host's side of asynchronous copies.

    Every device copies to and from it at full speed without the host's help, and kernels can use
    it, too. The host reads and writes it like an array while no GPU work uses it.

    Parameters
    ----------
    count : int
        Number of items; 0 makes an empty buffer without memory.
    dtype : dtype-like, optional
        Any NumPy dtype of a fixed size without objects; default: bytes.
    stream : Stream, optional
        The memory may be that of an earlier buffer which unfinished work still uses, if all that
        work is ordered before the next operation of this stream. The allocation counts as a write
        on the stream, so work on other streams has to be ordered after it. If the host uses the
        buffer before any stream does, the buffer gets memory that no unfinished work uses, and
        nothing has to be ordered after the allocation. Default: the current stream of a
        ``with stream:`` block, or none. With a blocking or default stream, or on a device without
        ``concurrent_managed_access``, the allocation has no order, as without a stream.
    write_combined : bool, optional
        Whether the host's writes bypass its caches: somewhat faster to copy to the GPU, and very
        slow for the host to read.
    device : Device, optional
        The device in whose primary context it is allocated; default: the stream's context, else
        the current context.
    name : str, optional
        Shown in messages.
    pooled : bool, optional
        Whether the memory comes from the context's pool and goes back to it (docs/memory-pools.md).
        If False, it comes from the driver and goes back to the driver, not ordered on any stream.
    shareable : bool, optional
        Whether `Buffer.share` can lend it to another process. Such memory is not pooled, is not
        allocated on a stream, and cannot be write-combined.

    The contents are undefined at first. Without a stream, allocating does not order any work. It
    may block if the pool has no fitting memory, and is then slow (docs/performance.md).

    Raises
    ------
    TypeError, ValueError
        The count, dtype, stream, device or name is not valid.
    CudaOutOfMemoryError
        The message lists the live buffers, grouped by the source line that allocated them.

    Driver functions: cuMemHostAlloc, portable and mapped; cuMemAllocFromPoolAsync for memory of a
    `DriverPool`.
    """

    def __cinit__(self):
        self.kind = LOCKED
        self.host_side = self.portable = True

    def __init__(
        self, count, dtype="u1", *, stream=None, bint write_combined=False, device=None,
        name=None, bint pooled=True, bint shareable=False
    ):
        if shareable and write_combined:
            raise ValueError("page-locked memory that processes share cannot be write-combined")
        if shareable:
            _allocate_shareable(self, count, dtype, stream, device, name)
            return
        _allocate(self, count, dtype, stream, device,
                  locked_flags | (CU_MEMHOSTALLOC_WRITECOMBINED if write_combined else 0), name,
                  pooled)

    @classmethod
    def from_memory(cls, array, *, device=None, name=None):
        """Page-lock memory that exists, where it is: an array, or an object such as a mmap.

        Nothing is copied. The buffer keeps the array, and thereby its memory, until the memory is
        unlocked again: by `Buffer.close`, or, for a dropped buffer, once all work that uses it is
        known to be complete. Locking and unlocking take the driver some time (docs/performance.md),
        so lock memory once for many copies. Other arrays over the same memory stay usable, and
        cudadrv does not see how they are used (docs/ownership.md).

        Parameters
        ----------
        array : numpy.ndarray, or object with the buffer protocol
            C-contiguous items of a dtype that buffers can have. If it is read-only, so is the
            buffer: it can be copied from, and be read by kernels and by the host.
        device : Device, optional
            The device in whose primary context it is locked; default: the current context. All
            devices can use it.
        name : str, optional
            Shown in messages.

        Returns
        -------
        LockedBuffer
            With the dtype and the shape of the array. It comes from no pool, and cannot be given
            away or shared with other processes. Without items, no memory is locked.

        Raises
        ------
        TypeError, ValueError
            ``array`` is no array, has objects, is not C-contiguous or not aligned; some bytes
            belong to another buffer, or to a dropped one whose work may be unfinished; the device
            cannot lock such memory.
        CudaOutOfMemoryError
            The system does not let the driver lock so much memory.
        CudaError
            The driver refuses the memory: it is not mapped, or another library has locked it.
            Systems may refuse writable mappings of files: map those read-only.

        If a file is truncated while it is mapped, using the bytes behind its end ends the process
        (SIGBUS), as without cudadrv.

        Driver functions: cuMemHostRegister, portable and mapped, and read-only for an array that
        is read-only; cuMemHostUnregister.
        """
        cdef LockedBuffer buffer = LockedBuffer.__new__(LockedBuffer)
        register_region(buffer, array, context_of(device), name)
        return buffer


# ---- managed memory ----

@cython.final
cdef class UnifiedBuffer(HostBuffer):
    """UnifiedBuffer(count, dtype='u1', *, stream=None, device=None, name=None, pooled=True)\n--\n
    Managed memory: one address for the host and all devices, moved by the driver on demand.

    The host reads and writes it like an array while no GPU work uses it; an access that would race
    with GPU work raises an error. If a device's attribute ``concurrent_managed_access`` is 0, any
    unfinished work on that device excludes the host from all managed memory; `attach` restricts
    this to one stream.

    Parameters
    ----------
    count : int
        Number of items; 0 makes an empty buffer without memory.
    dtype : dtype-like, optional
        Any NumPy dtype of a fixed size without objects; default: bytes.
    stream : Stream, optional
        The memory may be that of an earlier buffer which unfinished work still uses, if all that
        work is ordered before the next operation of this stream. The allocation counts as a write
        on the stream, so work on other streams has to be ordered after it. If the host uses the
        buffer before any stream does, the buffer gets memory that no unfinished work uses, and
        nothing has to be ordered after the allocation. Default: the current stream of a
        ``with stream:`` block, or none. With a blocking or default stream, or on a device without
        ``concurrent_managed_access``, the allocation has no order, as without a stream.
    device : Device, optional
        The device in whose primary context it is allocated; default: the stream's context, else
        the current context.
    name : str, optional
        Shown in messages.
    pooled : bool, optional
        Whether the memory comes from the context's pool and goes back to it (docs/memory-pools.md).
        If False, it comes from the driver and goes back to the driver, not ordered on any stream.

    The contents are undefined at first. Without a stream, allocating does not order any work. It
    may block if the pool has no fitting memory.

    Raises
    ------
    TypeError, ValueError
        The count, dtype, stream, device or name is not valid.
    CudaOutOfMemoryError
        The message lists the live buffers by line.

    Driver functions: cuMemAllocManaged; cuMemAllocFromPoolAsync for memory of a `DriverPool`.
    """

    def __cinit__(self):
        self.kind = UNIFIED
        self.portable = True

    def __init__(
        self, count, dtype="u1", *, stream=None, device=None, name=None, bint pooled=True
    ):
        _allocate(self, count, dtype, stream, device, 0, name, pooled)

    @property
    def migrations(self):
        """How often the memory moved from a device to the host without a prefetch.

        For each 64 KiB cudadrv counts the uses by the host between which GPU work used the bytes.
        The value is the highest of these counts in the buffer. Bytes that a prefetch moved to the
        host in between do not count. Nor does memory that was given advice. See `migration_limit`.
        """
        self.usable()
        if self.memory.migrations is None or self.nbytes == 0:
            return 0
        return self.memory.migrations.most(self.start, self.start + self.nbytes)

    def prefetch(self, place, stream=None):
        """Queue a move of the pages to a place, before they are used there. Does not wait for it.

        A prefetch changes no bytes: the host and other work may use the buffer meanwhile, and
        nothing has to be ordered after it. The buffer cannot be closed until the prefetch is known
        to be complete. An empty buffer has nothing to move. The call itself can take part of the
        time of the move, in particular for a move to the host.

        Parameters
        ----------
        place : Device or str
            A device; ``"host"``; or ``"host:N"``, the NUMA node N of the host.
        stream : Stream, optional
            The pages move when earlier work of this stream is complete. Default: the current
            stream of a ``with stream:`` block; without one, a TypeError.

        Returns
        -------
        Token

        Raises
        ------
        TypeError, ValueError
            There is no stream; there is no such place; the device, or the stream's device, has no
            ``concurrent_managed_access``; ``"host:N"`` with a driver before CUDA 13.0, or on the
            legacy default stream.
        BufferClosedError
            See docs/errors.md.
        CudaError
            A driver call failed; there is no such NUMA node.

        Driver functions: cuMemPrefetchAsync; cuMemPrefetchBatchAsync for ``"host:N"``.
        """
        return prefetch_region(self, place, stream)

    def discard(self, stream=None):
        """Queue a discard: the contents are not needed any more. Does not wait for it.

        The driver then need not move the pages to where they are used next, and may take them back.
        A discard counts as a write. From this call until something writes the bytes, the contents
        are undefined, and a use that reads them raises ContentsDiscardedError: by the host, by
        copies, by kernels that get the buffer as ``cu.read``, and by loans. A use that may write a
        range counts as writing all of it: a copy, a fill, a bare argument of a kernel, a
        ``write()`` block of the host.

        A driver before CUDA 13.0 cannot discard, so no driver call is made. The same rules hold
        then, except that the default streams' rules do not order the discard.

        Parameters
        ----------
        stream : Stream, optional
            Default: the current stream of a ``with stream:`` block; without one, a TypeError.

        Returns
        -------
        Token

        Raises
        ------
        TypeError, ValueError
            There is no stream; it is the legacy default stream; its device has no
            ``concurrent_managed_access``; the memory is read-only.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            The buffer is in use. Every view and loan conflicts, even a loan to this stream.
        CudaError
            A driver call failed.

        Driver function: cuMemDiscardBatchAsync.
        """
        return discard_region(self, False, None, stream)

    def discard_and_prefetch(self, place, stream=None):
        """Queue a discard, and a move of the pages to where they will be written next.

        Like `discard` and then `prefetch`, but nothing is copied. Does not wait for it. A driver
        before CUDA 13.0 only prefetches, and so copies the contents.

        Parameters
        ----------
        place : Device or str
            As for `prefetch`.
        stream : Stream, optional
            Default: the current stream of a ``with stream:`` block; without one, a TypeError.

        Returns
        -------
        Token

        Raises
        ------
        TypeError, ValueError, CudaError
            See `discard` and `prefetch`.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See `discard`.

        Driver functions: cuMemDiscardAndPrefetchBatchAsync, or else cuMemPrefetchAsync.
        """
        return discard_region(self, True, place, stream)

    def attach(self, to, stream=None):
        """Queue a change of which streams may use the memory. Does not wait for it.

        This is for devices without ``concurrent_managed_access``, where unfinished work excludes
        the host from managed memory. After ``attach(stream)`` only that stream may use this memory,
        and only its work excludes the host. After ``attach("host")``, no stream may use it, and no
        work excludes the host. ``attach("global")`` allows all streams again. The change counts as
        a write on the stream that queues it: the host and other streams have to be ordered after
        it.

        On devices with ``concurrent_managed_access``, every stream may still use the memory.
        An attachment ends with its stream. The memory of a buffer that was attached goes back to
        the driver, and not to the pool.

        Parameters
        ----------
        to : Stream, "global" or "host"
            Who may use the memory.
        stream : Stream, optional
            The stream that queues the change, for "global" and "host". Default: the current stream
            of a ``with stream:`` block; without one, a TypeError. A stream queues its own
            attachment.

        Returns
        -------
        Token

        Raises
        ------
        TypeError, ValueError
            There is no stream; ``to`` is none of these; ``stream`` is given although ``to`` is a
            stream; the buffer is not the whole of its allocation; the memory is read-only, or a
            `DriverPool`'s.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            The buffer is in use. Every view and loan conflicts, even a loan to this stream.
        CudaError
            A driver call failed.

        Driver function: cuStreamAttachMemAsync.
        """
        return attach_region(self, to, stream)

    def advise(self, *, read_mostly=None, preferred=None, accessed_by=None):
        """Tell the driver how the memory will be used. Applies at once; does not block.

        Advice changes where pages are and when they move, but no results. It applies to whole
        pages, so advice about a part of a buffer can also apply to bytes next to the part. None
        leaves a kind of advice unchanged. The memory of a buffer that was given advice goes back to
        the driver, and not to the pool.

        Parameters
        ----------
        read_mostly : bool, optional
            Whether each reader gets a copy of the pages, until somebody writes to them.
        preferred : Device, "host" or False, optional
            Where the pages should stay. False removes this advice.
        accessed_by : iterable of Device and "host", optional
            All places whose access should be possible without a fault: the pages stay mapped there
            when they move. An empty set removes this advice.

        Raises
        ------
        TypeError, ValueError
            An argument is not valid; a device has no ``concurrent_managed_access``; the memory is
            from a `DriverPool`.
        BufferClosedError
            See docs/errors.md.
        CudaError
            A driver call failed.

        Driver function: cuMemAdvise.
        """
        advise_region(self, read_mostly, preferred, accessed_by)

    @property
    def advice(self):
        """The advice of the pages, and the place of the last prefetch: an `Advice`.

        The values come from the driver (cuMemRangeGetAttribute). If pages differ in a kind of
        advice, that kind is shown as not given. The last prefetch may be one of an earlier buffer
        that had the same memory of a pool.
        """
        return advice_of(self)


# ---- device memory ----

@cython.final
cdef class DeviceBuffer(Buffer):
    """DeviceBuffer(count, dtype='u1', *, stream=None, device=None, name=None, pooled=True, \
capacity=None, accessible_by=None)\n--\n
    Memory of a device. The host can only copy to it and from it.

    Parameters
    ----------
    count : int
        Number of items; 0 makes an empty buffer without memory.
    dtype : dtype-like, optional
        Any NumPy dtype of a fixed size without objects; default: bytes.
    stream : Stream, optional
        Allocates stream-ordered memory on this stream. The allocation counts as a write on the
        stream, so work on other streams has to be ordered after it. Default: the current stream of
        a ``with stream:`` block; without one, or with ``pooled=False``, the memory is not
        stream-ordered.
    device : Device, optional
        The device in whose primary context it is allocated; default: the stream's context, else
        the current context.
    name : str, optional
        Shown in messages.
    pooled : bool, optional
        Whether the memory comes from the context's pool and goes back to it (docs/memory-pools.md).
        If False, it comes from the driver and goes back to the driver.
    capacity : int, optional
        Makes a buffer that can `grow` to this number of items: addresses are reserved for all of
        them, and memory is mapped for ``count`` items. Such memory is neither pooled nor
        stream-ordered.
    accessible_by : Device or iterable of Device, optional
        With ``capacity``: other devices whose streams and kernels may use the memory, too.

    The contents are undefined at first. Allocating from the pool does not block; allocating from
    the driver may. An allocation without a stream does not order any work.

    Raises
    ------
    TypeError, ValueError
        The count, dtype, stream, device, name, capacity or accessible_by is not valid.
    CudaOutOfMemoryError
        The message lists the live buffers by line.

    Driver functions: cuMemAlloc, or cuMemAllocAsync; cuMemAllocFromPoolAsync for memory of a
    `DriverPool`; with ``capacity`` cuMemGetAllocationGranularity, cuMemAddressReserve and those of
    `grow`.
    """

    def __init__(
        self, count, dtype="u1", *, stream=None, device=None, name=None, bint pooled=True,
        capacity=None, accessible_by=None
    ):
        if capacity is None:
            if accessible_by is not None:
                raise ValueError("accessible_by= is for memory with a capacity=; without one, give"
                                 " the devices access to each other")
            _allocate(self, count, dtype, stream, device, 0, name, pooled)
        elif stream is not None:
            raise ValueError("memory with a capacity= is not allocated on a stream: leave out"
                             " stream=")
        else:
            allocate_growing(self, count, dtype, capacity, context_for(None, device),
                             accessible_by, name)

    @classmethod
    def pitched(cls, shape, dtype="u1", *, stream=None, device=None, name=None, bint pooled=True):
        """Make a buffer with two or more dimensions whose rows are aligned, with gaps between them.

        Each row begins at a multiple of the device's TEXTURE_ALIGNMENT; ``strides`` says how many
        bytes the rows are apart. The memory comes from the same places as the memory of other
        buffers. The contents are undefined at first.

        Parameters
        ----------
        shape : tuple of int
            The sizes, the number of items of a row last.
        dtype, stream, device, name, pooled
            As for the class.

        Raises what the class raises, TypeError if the shape is no tuple, and ValueError for less
        than two or more than three sizes.

        Driver functions: those of the class.

        >>> image = cu.DeviceBuffer.pitched((480, 640), "f4")
        >>> image.strides
        (2560, 4)
        """
        cdef DeviceBuffer made
        cdef object row
        sizes = []
        if not isinstance(shape, (tuple, list)):
            raise TypeError(f"shape must be a tuple of two or three sizes, and is {shape!r}")
        for size in shape:
            sizes.append(integer(size, "a size"))
        if len(sizes) not in (2, 3) or min(sizes) < 0:
            raise ValueError(f"a pitched buffer has two or three sizes that are not negative, and"
                             f" shape is {shape!r}")
        found = known_stream(stream)
        item = items_of(dtype).dtype
        alignment = context_for(found, device).device.attribute("texture_alignment")
        row = -(-sizes[-1] * item.itemsize // alignment) * alignment
        steps = [row, item.itemsize] if len(sizes) == 2 else [row * sizes[1], row, item.itemsize]
        rows = sizes[0] if len(sizes) == 2 else sizes[0] * sizes[1]
        made = cls(row * rows, "u1", stream=stream, device=device, name=name, pooled=pooled)
        lay_over(made, item, tuple(sizes), tuple(steps))
        return made

    @property
    def capacity(self):
        """How many items the buffer can have at its present address: see `grow`.

        For a buffer of a fixed size, and for a part, it is ``count``.
        """
        self.usable()
        return capacity_of(self)

    @property
    def accessible_by(self):
        """The devices whose streams may use the memory without copying it, as a tuple.

        The first device is the one that the memory is on.
        """
        self.usable()
        return devices_of(self)

    def grow(self, count):
        """Make the buffer longer: map memory for ``count`` items. The address stays.

        The items keep their contents; the contents of new items are undefined. Work that uses the
        buffer goes on meanwhile, and so do parts, loans and prepared launches: parts and loans keep
        their size. Orders no work. May block in the driver.

        Parameters
        ----------
        count : int
            The new number of items: at least the present one, at most the `capacity`.

        Raises
        ------
        TypeError, ValueError
            The count is not valid; the buffer was made without ``capacity=``; it is a part, or was
            reshaped.
        CudaOutOfMemoryError, CudaError
            There is no memory, or a driver call failed. The buffer is as before.
        BufferBorrowedError
            The call was made during another change of the size, for example by a finalizer.
        BufferClosedError
            The buffer is closed.

        Driver functions: cuMemCreate, cuMemMap, cuMemRelease, cuMemSetAccess.
        """
        grow_region(self, count)

    def shrink(self, count):
        """Make the buffer shorter, and give memory behind ``count`` items back to the driver.

        Nothing may use the items that go: no unfinished work, no graph, no loan. The other items
        may be in use. Parts of the items that go cannot be used until the buffer has grown again.
        Memory goes back in the pieces in which it was mapped, of at most 64 MiB: a piece goes when
        the buffer needs none of its bytes. Blocks until the device is idle; signals such as Ctrl-C
        interrupt the wait, and then nothing has changed.

        Parameters
        ----------
        count : int
            The new number of items, at most the present one.

        Raises
        ------
        TypeError, ValueError
            As for `grow`.
        BufferBorrowedError, BufferExportedError
            The items that go are in use. The buffer is as before.
        BufferClosedError
            The buffer is closed.
        OwnershipError
            The wait would never end: another process has ended before its work was complete.
        CudaError
            A driver call failed. If memory has already gone back, the buffer is shorter.

        Driver function: cuMemUnmap.
        """
        shrink_region(self, count)

    def to_numpy(self, *, stream=None):
        """Copy the items into a new array of the buffer's shape. Blocks until the copy is complete.

        Like `Buffer.copy_to` with a new array. The copy runs on the given stream, else on the
        current stream, else on an internal stream; on the internal stream, the copy is refused
        while unfinished work may write the items.

        Parameters
        ----------
        stream : Stream, optional
            As for `Buffer.copy_from`.

        Raises what `Buffer.copy_to` raises.

        Driver functions: those of `Buffer.copy_to`.
        """
        stream = known_stream(stream)
        self.usable()
        whole = of_present_size(self)   # other threads may let the buffer grow meanwhile
        array = np.empty(whole.shape, whole.dtype)
        whole.copy_to(array, stream=stream)
        return array

    def __setitem__(self, key, value):
        """__setitem__($self, key, value, /)\n--\n
        Raise TypeError: the host cannot write into the memory of a device."""
        raise TypeError("the host cannot write into a DeviceBuffer; copy what you need:"
                        " buffer[i:j].copy_from(array), or buffer[i:j].fill(value)")

    def __iter__(self):
        """__iter__($self, /)\n--\n
        Iterate over the rows of a buffer with several dimensions. Raises TypeError for a buffer
        with one dimension, because the host cannot read the memory of a device.
        """
        if self.sizes is not None and len(self.sizes) > 1:
            return map(self.__getitem__, range(len(self)))
        raise TypeError("the host cannot read a DeviceBuffer; copy it: buffer.copy_to(array)")

    def __array__(self, dtype=None, copy=None):
        """Raise TypeError: the host cannot read the memory of a device."""
        raise TypeError("a DeviceBuffer is no array: the host cannot read it. Copy it to one:"
                        " buffer.to_numpy()")

    cdef Buffer moved_to(self, object place, bint copy, object kind, object stream):
        return _moved_to(self, place, copy, kind, stream)


# ---- calls of the classes ----
#
# Fast path of calls of the three classes: see `calls.h`. Only arguments that few programs pass are
# left to `__init__`.

cdef object _call_device(object cls, PyObject *const *given, size_t nargsf, PyObject *names):
    return _call(cls, DeviceBuffer.__new__(DeviceBuffer), 0, given, nargsf, names)


cdef object _call_locked(object cls, PyObject *const *given, size_t nargsf, PyObject *names):
    return _call(cls, LockedBuffer.__new__(LockedBuffer), locked_flags, given, nargsf, names)


cdef object _call_unified(object cls, PyObject *const *given, size_t nargsf, PyObject *names):
    return _call(cls, UnifiedBuffer.__new__(UnifiedBuffer), 0, given, nargsf, names)


cdef object _call(
    object cls, Buffer made, unsigned int flags, PyObject *const *given, size_t nargsf,
    PyObject *names
):
    """Initialize a buffer with the arguments of a call of its class, and return it."""
    cdef Py_ssize_t count = PyVectorcall_NARGS(nargsf)
    cdef object dtype = "u1" if count < 2 else <object>given[1]
    cdef object stream = None
    cdef object name = None
    cdef object device = None
    cdef Py_ssize_t i
    if unlikely(not 1 <= count <= 2):
        return _call_usually(cls, given, count, names)
    for i in range(0 if names is NULL else len(<tuple>names)):
        key = (<tuple>names)[i]  # Python interns the names in calls, so `is` finds them
        if key is "stream":
            stream = <object>given[count + i]
        elif key is "name":
            name = <object>given[count + i]
        elif key is "dtype" and count == 1:
            dtype = <object>given[count + i]
        elif key is "device":
            device = <object>given[count + i]
        else:
            return _call_usually(cls, given, count, names)
    _allocate(made, <object>given[0], dtype, stream, device, flags, name, True)
    return made


cdef object _call_usually(
    object cls, PyObject *const *given, Py_ssize_t count, PyObject *names
):
    cdef Py_ssize_t i
    cdef dict options = {}
    for i in range(0 if names is NULL else len(<tuple>names)):
        options[(<tuple>names)[i]] = <object>given[count + i]
    return type.__call__(cls, *tuple_of(given, count), **options)


exchange_call(DeviceBuffer, _call_device)
exchange_call(LockedBuffer, _call_locked)
exchange_call(UnifiedBuffer, _call_unified)


# ---- the classes by name ----

cdef dict CLASSES = {"device": DeviceBuffer, "locked": LockedBuffer, "unified": UnifiedBuffer}


cdef object class_of_kind(object kind, str what):
    """Return the class that a word names. `what` is the name of the word in messages."""
    if not isinstance(kind, str):
        raise TypeError(f"{what} must be a str, not {type(kind).__name__}")
    if kind not in CLASSES:
        raise ValueError(f"{what} is {kind!r}, and must be 'device', 'locked' or 'unified'")
    return CLASSES[kind]


cdef Buffer new_buffer(
    object cls, Py_ssize_t count, object dtype, Context context, Stream stream, object name
):
    """Allocate a buffer in a context, on the stream if there is one."""
    cdef Buffer made = cls.__new__(cls)
    made.allocate(
        count, dtype, context, stream, locked_flags if cls is LockedBuffer else 0, name, True,
        chosen_pool(made.kind, context) if driver_pools_used else None)
    return made


# ---- other places ----

cdef Buffer _moved_to(Buffer buffer, object place, bint copy, object kind, object stream):
    """Return a buffer with the same items that can be used at a place: see `Buffer.to`."""
    cdef Stream found = known_stream(stream)
    cdef Buffer made = buffer
    cdef Token token
    buffer.usable()
    cls = _class_at(buffer, place, kind)
    if copy or type(buffer) is not cls or (cls is DeviceBuffer and buffer.device != place):
        made = _copied_to(buffer, cls, place, found)
    if cls is UnifiedBuffer:
        context = made.memory.context
        token = move_region(made, place, blocking_stream(stream_for(found, context), made))
        if found is None:
            token._finish()
    return made


cdef object _class_at(Buffer buffer, object place, object kind):
    """Return the class of the result of `to`. Raises if it cannot be at the place."""
    check_place(place)
    on_device = isinstance(place, Device)
    if kind is not None:
        cls = class_of_kind(kind, "kind")
    elif isinstance(buffer, UnifiedBuffer):
        cls = UnifiedBuffer
    else:
        cls = DeviceBuffer if on_device else LockedBuffer
    if cls is DeviceBuffer and not on_device:
        raise ValueError(f"a DeviceBuffer is on a device, and the place is {place!r}; use"
                         " kind='locked' or kind='unified'")
    if cls is LockedBuffer and place != "host":
        raise ValueError(
            f"a LockedBuffer is on the host, and the place is {place!r}" + (
                "; use kind='device' or kind='unified'" if on_device else
                "; only a UnifiedBuffer can be on a certain NUMA node: kind='unified'"))
    return cls


cdef Buffer _copied_to(Buffer buffer, object cls, object place, Stream stream):
    """Return a new buffer of a class at a place. Waits for the copy if `stream` is None."""
    cdef Context context = buffer.memory.context
    cdef Buffer made, source
    if stream is not None:
        stream.usable()
        context = stream.context
    if isinstance(place, Device) and context.device != place:
        context = context_of(place)
    source = of_present_size(buffer)    # the buffer may grow while the result is allocated
    made = new_buffer(
        cls, source.count, source.dtype, context,
        stream if stream is not None and stream.context is context else None, buffer.name)
    made.sizes = source.sizes if len(source.shape) != 1 else None
    if stream is None:
        copy_and_wait(TO, made, source, None)
    else:
        copy_async(TO, made, source, stream, "to")
    return made
