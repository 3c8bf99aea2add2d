# cython: nonecheck=True
"""Region: some items of an allocation, the base of all buffers; and the dtypes of items.

State that outlives a call: dtypes that were looked up, and which classes the last buffers had (the
GIL guards them).
"""

import sys

import numpy as np

cimport cython
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject_TypeCheck, PyTypeObject
from libc.limits cimport LLONG_MAX
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from cudadrv._box cimport Part, lay_out, part_at, ranges_within, steps_of, told, whole_ranges
from cudadrv._device cimport Context
from cudadrv._driver cimport CUdeviceptr
from cudadrv._engine cimport engine, own_box, own_box_bytes, own_is_cut
from cudadrv._errors cimport refuse_if_forked, refuse_uninitialized
from cudadrv._foreign cimport adopt_memory, check_external
from cudadrv._memory cimport Memory, allocate_from, allocate_memory, use_on_host
from cudadrv._memory_kinds cimport DEVICE, FOREIGN
from cudadrv._operation cimport Operation
from cudadrv._ordering cimport policy_name
from cudadrv._pool cimport PoolHandle
from cudadrv._refusal cimport refuse_closed, refuse_cut, refuse_operation
from cudadrv._site cimport place
from cudadrv._stream cimport Stream

from cudadrv._errors import BufferClosedError, integer


# ---- dtypes ----

@cython.final
cdef class Items:
    """A dtype that buffers can have, with the size of an item."""


cdef Items items_of(object dtype):
    """Return the Items of a dtype-like. Raises TypeError or ValueError if no buffer can have them.
    """
    global _last, _last_items
    if dtype is _last:
        return _last_items
    if type(dtype) is str:
        found = _by_name.get(dtype)
        if found is not None:
            _last, _last_items = dtype, found
    elif isinstance(dtype, type):
        found = _by_type.get(dtype)
    else:
        found = None
    return found if found is not None else _items(_checked_dtype(dtype))


cdef Items _items(object dtype):
    cdef Items items = Items.__new__(Items)
    items.dtype = dtype
    items.itemsize = dtype.itemsize
    items.most = LLONG_MAX // items.itemsize
    return items


cdef str dtype_name(object dtype):
    """Return a dtype's name, or its short code at interpreter exit, when NumPy cannot name it."""
    try:
        return str(dtype)
    except ImportError:
        return dtype.str


cdef object _checked_dtype(object dtype):
    """Return the NumPy dtype of a dtype-like. Raises if no buffer can have items of it."""
    checked = np.dtype(dtype)
    if checked.hasobject or checked.kind == "T":
        raise TypeError(f"dtype {checked} holds Python objects, which no device can use; choose"
                        " one of a fixed size without objects")
    if checked.itemsize == 0:
        raise ValueError(f"dtype {checked} has items of 0 bytes; give it a size, such as 'S8'")
    if checked.subdtype is not None:
        raise ValueError(f"dtype {checked} is an array of items; use {checked.base} and multiply"
                         " the count, or wrap it in a structured dtype")
    return checked


# Tables of the common dtypes: a lookup by numpy.dtype would take longer than an allocation.
cdef dict _by_name = {}
cdef dict _by_type = {}
cdef object _last = object()    # the last name that was looked up
cdef Items _last_items = None   # the items of that name


def _remember_common():
    for code in "?bhilqBHILQefdgFDG":
        dtype = np.dtype(code)
        items = _items(dtype)
        _by_type[dtype.type] = items
        for name in (code, dtype.name, dtype.str, dtype.str[1:]):
            if np.dtype(name) == dtype:
                _by_name[sys.intern(name)] = items


_remember_common()


cdef object _ndarray = np.ndarray


cdef bint is_ndarray(object given) noexcept:
    """Like isinstance(given, numpy.ndarray), but False for proxies, which claim it by `__class__`.

    NumPy would convert a proxy to an array that may be a copy, and so results would be lost.
    """
    return PyObject_TypeCheck(given, <PyTypeObject *>_ndarray)


cpdef object plain_array(object array):
    """Return a plain ndarray over the same memory, whose attributes no subclass has overridden.

    Raises TypeError for a masked array, because its mask would be lost silently.
    """
    if type(array) is _ndarray:
        return array
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise TypeError("the mask of a masked array would be lost; pass array.filled(value), or"
                        " array.data for what is there without the mask")
    return np.asarray(array)


# ---- regions ----

cdef enum:
    MOST_SIZES = 64     # dimensions of a memoryview or a NumPy array

last_class = class_before = None


cdef bint is_other_region(object given) noexcept:
    global last_class, class_before
    if not isinstance(given, Region):
        return False
    last_class, class_before = type(given), last_class
    return True


@cython.freelist(64)
@cython.no_gc_clear
cdef class Region:
    """Items of one dtype in an allocation: the base of `Buffer`."""

    def __cinit__(self):
        self.kind = DEVICE

    def __dealloc__(self):
        if self.memory is not None and not self.moved:
            self.memory.regions -= 1
        free(self.box)

    def __len__(self):
        if self.sizes is None:
            return self.count
        if not self.sizes:
            raise TypeError("a buffer without dimensions has no length")
        return self.sizes[0]

    @property
    def count(self):
        """Number of items."""
        return self.count

    @property
    def itemsize(self):
        """Bytes of one item."""
        return self.itemsize

    @property
    def nbytes(self):
        """Bytes of all items, without the gaps between the rows of a box."""
        return self.count * self.itemsize

    @property
    def dtype(self):
        """The `numpy.dtype` of an item."""
        return self.dtype

    @property
    def shape(self):
        """The number of items along each dimension.

        It is ``(count,)``, unless the buffer was made by `reshape`, by an index, or from an array
        with another shape. ``to_numpy``, host views, exports and loans use it. Indices mean what
        they mean in NumPy.
        """
        return (self.count,) if self.sizes is None else self.sizes

    @property
    def strides(self):
        """Bytes from an item to the next one along each dimension, as in NumPy."""
        return steps_of(self.shape, self.itemsize) if self.steps is None else self.steps

    @property
    def flat(self):
        """The same items with one dimension: a part, whose indices count items.

        Raises ValueError for a box, whose rows have gaps between them.
        """
        self.usable()
        refuse_box(self, "flat")
        return self.part_of(slice(None))

    @property
    def name(self):
        """The buffer's name in messages, or None."""
        return self.name

    @property
    def address(self):
        """The address of the first byte, as an int. cudadrv does not see how it is used.

        It is valid on the device and, for a `LockedBuffer` or `UnifiedBuffer`, on the host.
        """
        self.usable()
        if self.memory.unused:  # the address may be used on the host
            use_on_host(self.memory)
        return pointer_of(self)

    @property
    def context(self):
        """The context that the memory belongs to."""
        return _memory_of(self).context

    @property
    def device(self):
        """The device of the buffer's context."""
        return _memory_of(self).context.device

    @property
    def closed(self):
        """Whether the buffer was closed or moved, or has lost items by `DeviceBuffer.shrink`."""
        return is_closed(self)

    @property
    def ordering(self):
        """The buffer's own policy, or None: see `cudadrv.ordering`. Parts made later inherit it.

        Setting it raises ValueError unless the value is a policy or None.
        """
        return self.policy

    @ordering.setter
    def ordering(self, value):
        self.policy = policy_name(value)

    # ---- parts ----

    def __getitem__(self, key):
        """__getitem__($self, key, /)\n--\n
        ``buffer[a:b]``: a part, which shares the memory and borrows only its own bytes.

        Indices mean what they mean in NumPy: ``image[10:20, 5:9]`` is a box of an image,
        ``image[3]`` a row, ``volume[..., 0]`` the first column of each slice.

        Raises ValueError for a step other than 1 and for a box that no copy can describe (more
        than three dimensions), IndexError for an index out of range, and TypeError for a single
        item and for other keys."""
        cdef Region part
        if self.sizes is None and isinstance(key, slice):
            return self.part_of(key)
        part = self.indexed(key)
        if part.sizes == ():
            raise TypeError(
                f"{type(self).__name__} has no access to single items from the host; copy what you"
                " need: buffer[i:i + 1].copy_to(array)")
        return part

    def split_at(self, index):
        """Split into two disjoint parts: the items before an index, and the items from it on.

        With several dimensions, the index counts rows, as ``len`` does. Two streams can use the two
        parts at once. Raises ValueError if the index is not within the buffer.
        """
        cdef Region whole
        at = integer(index, "index")
        self.usable()
        whole = of_present_size(self)
        if not 0 <= at <= len(whole):
            raise ValueError(f"cannot split {len(whole)} {_items_or_rows(whole)} at {at}")
        return whole[:at], whole[at:]

    def chunks(self, count):
        """Split into a list of disjoint parts of ``count`` items each; the last may be shorter.

        With several dimensions, they are parts of ``count`` rows. Raises ValueError if ``count`` is
        less than 1.
        """
        cdef Region whole
        size = integer(count, "count")
        if size < 1:
            raise ValueError(f"chunks need at least 1 item each, not {size}")
        whole = of_present_size(self)
        parts = []
        for at in range(0, len(whole), size):
            parts.append(whole[at:at + size])
        return parts

    def reshape(self, *shape):
        """Return a buffer over the same items with another shape, in C order; one size may be -1.

        Arrays of the buffer have this shape: from ``to_numpy``, in host views, and in other
        libraries. Indices count along its dimensions.

        Raises ValueError if the number of items differs, if a size other than one -1 is negative,
        for more than 64 sizes, or for a box, whose rows have gaps between them.
        """
        cdef Region whole, region
        self.usable()
        refuse_box(self, "reshape")
        whole = of_present_size(self)
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        found = _checked_shape(whole, sizes)
        region = whole.part_over(whole.start, whole.count, whole.dtype)
        region.part = self.part
        region.sizes = None if len(found) == 1 else found
        return region

    def view(self, dtype):
        """Return a part with the same bytes as items of another dtype.

        It has the buffer's shape if the items have the same size, else one dimension.

        Raises ValueError if the bytes are not a whole number of such items, or not aligned to them.
        """
        cdef Items items = items_of(dtype)
        cdef Region part
        wanted = items.dtype
        self.usable()
        if self.box is not NULL and items.itemsize != self.itemsize:
            refuse_box(self, "view, to items of another size,")
        if self.nbytes % wanted.itemsize:
            raise ValueError(f"{self.nbytes} bytes are no whole number of {wanted} items"
                             f" ({wanted.itemsize} bytes each)")
        # Blocks of memory whose address is not chosen yet are aligned to more than any item.
        if (self.memory.address + self.start) % wanted.alignment:
            start = self.start - self.memory.start
            raise ValueError(f"{self.describe()} starts at byte {start}, and {wanted} needs a"
                             f" multiple of {wanted.alignment}")
        if items.itemsize == self.itemsize:
            part = self.part_over(self.start, self.count, wanted)
            copy_layout(part, self)
            return part
        return self.part_over(self.start, self.nbytes // <size_t>items.itemsize, wanted)

    cdef Region part_of(self, slice key):
        """Return the items that a slice names, as a part with one dimension. Not for a box."""
        self.usable()
        start, stop, step = key.indices(self.count)
        if step != 1:
            raise ValueError(f"a part is contiguous: the step of a slice must be 1, not {step}")
        return self.part_over(self.start + start * self.itemsize, max(stop - start, 0), self.dtype)

    cdef Region indexed(self, object key):
        """Return the part that an index names, with the meaning of NumPy."""
        cdef Region part
        cdef Part found
        cdef Py_ssize_t count = 1
        self.usable()
        if self.sizes is None and type(key) is int and -self.count <= key < self.count:
            key %= self.count   # the most frequent item
            part = self.part_over(self.start + <size_t>key * self.itemsize, 1, self.dtype)
            part.sizes = ()
            return part
        found = part_at(self.shape, self.strides, key)
        for size in found.sizes:
            count *= size
        part = self.part_over(self.start + found.offset, count, self.dtype)
        shape_as(part, found.sizes, found.steps)
        if self.ranges is not None:
            part.ranges = ranges_within(self.ranges, found.ranges)
        elif not self.part:
            part.ranges = found.ranges
        return part

    cdef int allocate(
        self, object count, object dtype, Context context, Stream stream, unsigned int flags,
        object name, bint pooled, PoolHandle pool
    ) except -1:
        """Initialize as a buffer over new memory, which comes from `pool` if that is not None."""
        cdef Items items = items_of(dtype)
        cdef Py_ssize_t number = checked_count(count, items)
        label = checked_label(self, name)
        nbytes = <size_t>number * <size_t>items.itemsize
        if pool is not None:
            memory = allocate_from(pool, context, nbytes, stream, label)
        else:
            memory = allocate_memory(self.kind, context, nbytes, flags, stream, label, pooled)
        return fill_in(self, memory, number, items.dtype, items.itemsize, name)

    cdef int adopt(
        self, object address, object count, object dtype, Context context, object name,
        object owner, bint ours
    ) except -1:
        """Initialize as a buffer over existing memory, which is freed with the buffer if `ours`."""
        cdef Items items = items_of(dtype)
        cdef Py_ssize_t number = checked_count(count, items)
        label = checked_label(self, name)
        first = _checked_address(address, number, items.dtype)
        check_external(context, self.kind, first, label)
        memory = adopt_memory(self.kind if ours else FOREIGN, context, first,
                              <size_t>number * <size_t>items.itemsize, owner, label)
        if self.kind.managed:
            memory.state.managed = True
        return fill_in(self, memory, number, items.dtype, items.itemsize, name)

    cdef int stand_for(self, Memory memory, object dtype, str name) except -1:
        """Initialize as a part that covers a whole Memory: programs cannot close a part."""
        cdef Items items = items_of(dtype)
        dtype = items.dtype
        if memory.nbytes % items.itemsize or memory.address % dtype.alignment:
            raise ValueError(f"{name!r} has {memory.nbytes} bytes at {memory.address:#x}: that is"
                             f" no whole number of {dtype} items, aligned to {dtype.alignment}"
                             " bytes")
        fill_in(self, memory, memory.nbytes // <size_t>items.itemsize, dtype, items.itemsize, name)
        self.part = True
        return 0

    cdef int usable(self) except -1:
        """Raise if the buffer is closed or moved, the context lost, or the process forked.

        Page-locked memory can be used after its context is lost, because the host can still read
        it. Operations on streams of the lost context are refused by the check of the stream.
        """
        cdef uint32_t site = 0
        _memory_of(self)
        if self.host_side and self.memory.context.lost:
            refuse_if_forked()
        else:
            self.memory.context.usable()
        if self.moved:
            raise BufferClosedError(
                f"{self.describe()} was moved at {place(self.moved_at)}; use what that call"
                " returned")
        if self.memory.state.closed:
            refuse_closed(self.describe(), self.memory.closed_at)
        if _is_gone(self, &site):
            refuse_cut(self.describe(), site)
        return 0

    cdef int move_out(self, uint32_t site) except -1:
        """Mark this object as moved at a site: another object has the memory now."""
        self.moved_at = site
        self.moved = True
        self.memory.regions -= 1
        return 0

    cdef str describe(self):
        """Return the buffer's text in messages: ``LockedBuffer 'frames'[0:4096] (float32)``."""
        name = f" {self.name!r}" if self.name is not None else ""
        ranges = self.ranges
        if ranges is None and not self.part and self.sizes is not None:
            ranges = whole_ranges(self.sizes)
        if ranges is not None:
            return f"{type(self).__name__}{name}{told(ranges)} ({dtype_name(self.dtype)})"
        start = self.start - (self.memory.start if self.memory is not None else 0)
        first = start // self.itemsize if start % self.itemsize == 0 else None
        where = f"[{first}:{first + self.count}]" if first is not None \
            else f"[{start}:{start + self.nbytes} bytes]"
        return f"{type(self).__name__}{name}{where} ({dtype_name(self.dtype)})"

    cdef Region part_over(self, size_t start, Py_ssize_t count, object dtype):
        """Return a part: another buffer of the same class over bytes of the same memory."""
        cdef Region region = type(self).__new__(type(self))
        fill_in(region, self.memory, count, dtype, dtype.itemsize, self.name)
        region.start = start
        region.policy = self.policy
        region.part = True
        region.read_only = self.read_only
        region.no_items = self.no_items
        return region


cdef str _items_or_rows(Region region):
    return "items" if len(region.shape) == 1 else "rows"


cdef int shape_as(Region region, tuple sizes, tuple steps) except -1:
    """Give a new region sizes and steps. Raises ValueError if no copy could describe them."""
    cdef own_box box
    region.sizes = sizes if len(sizes) != 1 else None
    if region.count and lay_out(sizes, steps, region.itemsize, &box):
        region.box = <own_box *>malloc(sizeof(own_box))
        if region.box is NULL:
            raise MemoryError()
        region.box[0] = box
        region.sizes, region.steps = sizes, steps
        region.nbytes = own_box_bytes(&box)
    return 0


cdef int lay_over(Region region, object dtype, tuple sizes, tuple steps) except -1:
    """Let a new region of bytes have items of a dtype instead, with gaps between them."""
    cdef Items items = items_of(dtype)
    region.dtype, region.itemsize, region.count = items.dtype, items.itemsize, 1
    for size in sizes:
        region.count *= size
    region.nbytes = <size_t>region.count * <size_t>region.itemsize
    return shape_as(region, sizes, steps)


cdef int copy_layout(Region region, Region like) except -1:
    """Give a new region the shape of another region, which has the same items."""
    if like.box is NULL:
        region.sizes = like.sizes
    else:
        shape_as(region, like.sizes, like.steps)
    region.ranges = like.ranges
    return 0


cdef Region uncounted(Region region):
    """Return a buffer over the same bytes that does not count as a part of the memory.

    Queued work refers to it, so it is alive when the program has dropped all parts.
    """
    cdef Region same = region.part_over(region.start, region.count, region.dtype)
    copy_layout(same, region)
    same.part = region.part
    same.move_out(0)
    return same


cdef int refuse_box(Region region, str what) except -1:
    """Raise ValueError for a box: `what` needs bytes in one piece."""
    if region.box is not NULL:
        raise ValueError(f"{what} needs items in one piece, and the rows of {region.describe()}"
                         " have gaps between them; use whole rows, or copy it to a buffer of its"
                         " own")
    return 0


cdef Region of_present_size(Region region):
    """Return a buffer of the same items that never grows: a part, if the buffer may grow.

    Code that reads the size more than once needs such a buffer, because between two reads other
    threads may let the given buffer grow or shrink.
    """
    cdef Region part
    if not grows(region):
        return region
    part = region.part_of(slice(None))
    part.sizes = region.sizes
    return part


cdef int refuse_writing(Region region) except -1:
    owner = "another library that says it" if region.memory.kind.borrowed else "its owner, which"
    raise BufferError(f"{region.describe()} is memory of {owner} is read-only; a kernel that only"
                      " reads it: cudadrv.read(buffer)" + (
                          "; the host: buffer.read() or buffer.readonly()"
                          if region.memory.kind.host_access else ""))


cdef int refuse_regions(
    Operation *operation, int reason, Stream stream, object used, Region other
) except -1:
    """Raise the exception for a reason that `issue` returned. The other arguments are `queue`'s."""
    cdef Region region
    described = []
    for region in used if type(used) is list else (used, other):
        if region is not None:
            described.append(region.describe())
    return refuse_operation(operation, reason, stream, tuple(described))


cdef bint is_closed(Region region) noexcept:
    """See `Region.closed`."""
    return region.moved or region.memory is None or region.memory.state.closed \
        or _is_gone(region, NULL)


cdef bint _is_gone(Region region, uint32_t *site) noexcept:
    """Whether the memory has shrunk and lacks bytes of the region. Sets the site of `shrink`."""
    return region.memory.state.limited != 0 and region.nbytes and own_is_cut(
        engine, region.memory.state, region.start + region.nbytes, site)


cdef Memory _memory_of(Region region):
    """Return the memory of a region. Raises TypeError if its ``__init__`` never ran."""
    if region.memory is None:
        refuse_uninitialized(region)
    return region.memory


cdef int fill_in(
    Region region, Memory memory, Py_ssize_t count, object dtype, Py_ssize_t itemsize, str name
) except -1:
    if region.memory is not None:
        raise TypeError(f"{region.describe()} is initialized already")
    memory.regions += 1
    region.memory = memory
    region.start = memory.start
    region.count = count
    region.dtype = dtype
    region.itemsize = itemsize
    region.nbytes = <size_t>count * <size_t>region.itemsize
    region.name = name
    return 0


cdef tuple _checked_shape(Region region, object shape):
    """Return the shape as a tuple, with a number in place of -1. Raises ValueError if the region
    does not have this shape.
    """
    sizes = []
    items = 1
    missing = None
    for size in shape:
        size = integer(size, "a size")
        if size == -1 and missing is None:
            missing = len(sizes)
        elif size < 0:
            raise ValueError(f"shape is {tuple(shape)}: sizes are not negative, but for one -1")
        else:
            items *= size
        sizes.append(size)
    if len(sizes) > MOST_SIZES:
        raise ValueError(f"arrays have at most {MOST_SIZES} dimensions, not {len(sizes)}")
    if missing is not None and items and region.count % items == 0:
        sizes[missing] = region.count // items
        items = region.count
    if missing is not None and -1 in sizes or items != region.count:
        raise ValueError(f"{region.describe()} has {region.count} items, which shape"
                         f" {tuple(shape)} has not")
    return tuple(sizes)


cdef Py_ssize_t checked_count(object count, Items items, str what="count") except -1:
    """Return a count as a number. Raises TypeError or ValueError if there cannot be so many items.
    """
    cdef int overflow = 0
    cdef long long number
    if type(count) is not int:
        if isinstance(count, tuple):
            raise TypeError(
                f"{what} must be an integer, not {count}; for memory with a shape, call"
                " cudadrv.empty(shape, dtype), or reshape(shape) of a buffer")
        count = integer(count, what)
    number = PyLong_AsLongLongAndOverflow(count, &overflow)
    if number < 0 and overflow <= 0:
        raise ValueError(f"{what} must not be negative, and is {count}")
    if overflow or number > items.most:
        raise ValueError(
            f"{what} is {count}: no memory has so many {items.itemsize}-byte items")
    return number


cdef CUdeviceptr _checked_address(object address, Py_ssize_t count, object dtype) except? 0:
    """Return an address as a number, or 0 if there are no items. Raises if it cannot be valid."""
    number = integer(address, "address")
    if count == 0:
        return 0
    if not 0 < number < 1 << 63 or number % dtype.alignment:
        raise ValueError(f"there cannot be items of dtype {dtype} at address {number:#x}")
    return number


cdef str checked_label(Region region, object name):
    """Return class and name of a buffer, for messages. Raises TypeError if the name is no str."""
    cdef str label = <str>region.kind.buffer    # `__name__` would be a new string each time
    if name is None:
        return label
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    return f"{label} {name!r}"
