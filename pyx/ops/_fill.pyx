"""Fills of buffers. The fills of graphs are in _fill_node.

State that outlives a call: the last fill's value and dtype (the GIL guards them).
"""

import numpy as np

from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.math cimport isinf
from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from cudadrv._box_copy cimport BoxFill, describe_fill, fill_box_call, refuse_several
from cudadrv._capture cimport GraphNode
from cudadrv._copy cimport nothing_to_do
from cudadrv._driver cimport (
    CUDA_SUCCESS, CUdeviceptr, CUresult, CUstream, cuMemsetD16Async, cuMemsetD2D32Async,
    cuMemsetD32Async, cuMemsetD8Async, in_cuMemcpyDtoDAsync, likely, unlikely,
)
from cudadrv._engine cimport OWN_WRITE, own_access
from cudadrv._names cimport FILL_ASYNC, FILL_BOX
from cudadrv._operation cimport Operation, prepare
from cudadrv._peers cimport refuse_unreachable
from cudadrv._region cimport (
    Region, borrow, check_region, of_present_size, plain_array, pointer_of, queue,
)
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token, new_token, stand_for

cdef tuple INTEGERS = (int, np.integer)
cdef object _plain_dtype = None     # the dtype that was last passed to _code_of
cdef int _plain_code = 0            # what _code_of returned for `_plain_dtype`

last_value = None
last_dtype = None


cdef int set_new_item(unsigned char *item, object value, Region region) except -1:
    global last_value, last_dtype
    dtype = region.dtype
    cdef int code = _code_of(dtype)
    memset(item, 0, MOST_BYTES)
    if type(value) is int and _set_integer(item, value, code) \
            or type(value) is float and _set_float(item, value, code):
        memcpy(last_item, item, sizeof(last_item))
        last_value = value
        # Set last, because dropping the old dtype can run Python code that calls a fill, too.
        last_dtype = dtype
        return 0
    return _set_bytes(item, _item(value, dtype).tobytes(), region)


cdef int _set_bytes(unsigned char *item, bytes given, Region region) except -1:
    """Set the bytes of an item, or raise if the device cannot fill with it.

    The device fills with any byte. If all bytes of an item are equal, it may have any size.
    """
    dtype = region.dtype
    memset(item, given[0], MOST_BYTES)
    if given == given[:1] * len(given):
        return 0
    if not _has_fills(region.itemsize):
        raise TypeError(
            f"items of dtype {dtype} have {dtype.itemsize} bytes, and the device fills items of 1,"
            " 2, 4, 8, 12 or 16, or of any size if all their bytes are equal, as in 0. Copy from an"
            " array instead: copy_from(numpy.full(count, value, dtype))")
    # An address that is not chosen yet must not be chosen here: the host may be the first user.
    _check_aligned(region, region.memory.address + region.start)
    memcpy(item, <const char *>given, len(given))
    return 0


cdef bint _has_fills(size_t itemsize) noexcept:
    """Whether the driver can fill items of this size, whatever their bytes are."""
    return itemsize in (1, 2) or itemsize <= MOST_BYTES and itemsize % 4 == 0


cdef int _check_aligned(Region region, CUdeviceptr address) except -1:
    # A dtype whose alignment is smaller than its items allows parts that begin at any byte.
    if address % min(region.itemsize, 4):
        raise ValueError(
            f"{region.describe()} starts at byte {region.start}, and the device fills items of"
            f" {region.itemsize} bytes only at multiples of {min(region.itemsize, 4)}. Copy from an"
            " array instead: copy_from(numpy.full(count, value, dtype))")
    return 0


cdef int shape_fill(Fill *fill, Region region, const unsigned char *item) except -1:
    """Describe the fill of a whole buffer. Raises ValueError if the driver cannot fill there."""
    fill.target = pointer_of(region)
    fill.count = region.count
    fill.itemsize = region.itemsize
    memcpy(fill.item, item, MOST_BYTES)
    if likely(_has_fills(fill.itemsize) and fill.target & (min(fill.itemsize, <size_t>4) - 1) == 0):
        return 0
    if memcmp(item, item + 1, MOST_BYTES - 1):
        return _check_aligned(region, fill.target)
    fill.count, fill.itemsize = region.nbytes, 1
    return 0


cdef int _code_of(object dtype) except -1:
    """Return a code for the kind and size of a dtype, such as ``ord("i") << 8 | 4`` for int32.

    Returns 0 unless the items are integers or floats that C can represent.
    """
    global _plain_dtype, _plain_code
    cdef int code
    if dtype is not _plain_dtype:
        plain = dtype.kind in "iuf" and dtype.isnative and dtype.itemsize in (1, 2, 4, 8)
        code = ord(dtype.kind) << 8 | dtype.itemsize if plain else 0
        _plain_code = code
        # Set last, because dropping the old dtype can run Python code that calls a fill, too.
        _plain_dtype = dtype
        return code
    return _plain_code


cdef bint _set_integer(unsigned char *item, object value, int code) except -1:
    """Set an integer that fits into 64 bits and into the item. Returns False if it does not fit."""
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    cdef int bits = 8 * (code & 0xff)
    cdef int kind = code >> 8
    if overflow:
        return False
    if kind == c"f":
        return _set_float(item, <double>number, code)
    if kind == c"u":
        if number < 0 or bits < 64 and number >> bits:
            return False
    elif kind != c"i" or number >> (bits - 1) not in (0, -1):
        return False
    memcpy(item, &number, 8)  # all hosts of CUDA are little-endian
    return True


cdef bint _set_float(unsigned char *item, double number, int code) noexcept:
    cdef float single = <float>number
    if code == (c"f" << 8 | 8):
        memcpy(item, &number, 8)
        return True
    if code == (c"f" << 8 | 4) and isinf(single) == isinf(number):
        memcpy(item, &single, 4)
        return True
    return False


cdef object _item(object value, object dtype):
    """Return a 0-dimensional array of the dtype with the value. Raises if the dtype cannot hold it.
    0 sets all bytes of an item to 0, whatever its dtype.
    """
    item = np.zeros((), dtype)
    if type(value) is int and value == 0:
        return item
    if isinstance(value, np.ndarray):
        value = plain_array(value)
        if not value.shape:
            value = value[()]
    if dtype.names is not None and not (isinstance(value, np.void) and value.dtype == dtype):
        if not isinstance(value, tuple) or len(value) != len(dtype.names):
            raise TypeError(f"fill of dtype {dtype} takes a tuple of {len(dtype.names)} values")
        for name, part in zip(dtype.names, value):
            item[name] = _item(part, dtype[name]) if dtype[name].subdtype is None else part
    elif isinstance(value, INTEGERS) and dtype.kind in "iufc" \
            and not isinstance(value, np.timedelta64):
        _set_number(item, int(value))
    else:
        _set_same_kind(item, value)
    return item


cdef int _set_number(object item, object value) except -1:
    """Set an integer of any size, or raise ValueError."""
    try:
        if item.dtype.kind in "iu" \
                and not np.iinfo(item.dtype).min <= value <= np.iinfo(item.dtype).max:
            raise OverflowError
        _set_quietly(item, value, "unsafe")
        if item.dtype.kind in "fc" and not np.isfinite(item):
            raise OverflowError
    except OverflowError:
        raise ValueError(f"{value!r} does not fit into an item of dtype {item.dtype}") from None
    return 0


cdef int _set_same_kind(object item, object value) except -1:
    """Set a value that NumPy casts without a change of kind. Only precision may be lost."""
    given = np.asarray(value)
    if given.shape:
        raise ValueError(f"fill takes one value, not an array of shape {given.shape}")
    # NumPy would convert another kind of value to a text, and drop the imaginary part of a number
    # for a dtype of another package.
    if item.dtype.kind in "SU" and given.dtype.kind != item.dtype.kind \
            or item.dtype.isbuiltin == 2 and given.dtype.kind == "c":
        raise TypeError(f"{value!r} is not of the kind of an item of dtype {item.dtype}")
    _set_quietly(item, given, "same_kind")
    if _has_overflowed(item, given):
        raise ValueError(f"{value!r} does not fit into an item of dtype {item.dtype}")
    return 0


cdef bint _has_overflowed(object item, object given) except -1:
    if item.dtype.name.startswith(("int", "uint")):     # also in other packages
        return item != given
    if item.dtype.isbuiltin == 2:   # a float of another package; some of these have no infinity
        return bool(np.isfinite(item)) != bool(np.isfinite(given))
    if item.dtype.kind in "fc":
        return bool(np.isinf(item)) != bool(np.isinf(given))
    return item.dtype.kind in "SUV" and given.itemsize > item.itemsize and item != given


cdef int _set_quietly(object item, object value, str casting) except -1:
    """Set an item. NumPy does not warn of an overflow, because the caller checks for overflows."""
    state = np.errstate(over="ignore")
    state.__enter__()
    try:
        np.copyto(item, value, casting=casting)
    finally:
        state.__exit__(None, None, None)
    return 0


cdef CUresult _fill_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Fill *fill = <Fill *>arguments
    cdef CUresult status
    cdef uint16_t half = 0
    cdef uint32_t[4] words
    cdef size_t count, more
    cdef int columns, i
    if fill.itemsize == 1:
        return cuMemsetD8Async(fill.target, fill.item[0], fill.count, stream)
    if fill.itemsize == 2:
        memcpy(&half, fill.item, 2)
        return cuMemsetD16Async(fill.target, half, fill.count, stream)
    memcpy(words, fill.item, MOST_BYTES)
    columns = columns_of(fill)
    if columns == 1:
        return cuMemsetD32Async(fill.target, words[0], fill.itemsize // 4 * fill.count, stream)
    # The driver fills only items of up to 4 bytes. So the buffer is filled as a matrix, whose rows
    # are the items, and whose columns have one word each. An H200 fills such columns at 6 GB/s, and
    # copies at 1,400 GB/s. So only the first items of a large buffer are filled in this way.
    count = fill.count
    if fill.doubles and count * fill.itemsize >= LARGE:
        count = FIRST_BYTES // fill.itemsize
    status = cuMemsetD2D32Async(fill.target, fill.itemsize, words[0], 1, count, stream)
    for i in range(1, columns):
        if status == CUDA_SUCCESS:
            queued[0] = i   # a capture counts the calls: see `_issue` of _capture
            status = cuMemsetD2D32Async(
                fill.target + 4 * i, fill.itemsize, words[i], 1, count, stream)
    while status == CUDA_SUCCESS and count < fill.count:
        more = min(count, fill.count - count)
        # The copy needs its context here. `issue` repeats an operation in the right context only if
        # no part of it is queued yet.
        status = in_cuMemcpyDtoDAsync(
            fill.context, fill.target + count * fill.itemsize, fill.target, more * fill.itemsize,
            stream)
        count += more
    return status


cdef enum:
    FIRST_BYTES = 3 << 14   # a multiple of the sizes of items that have several words
    LARGE = 4 * FIRST_BYTES


cdef int columns_of(const Fill *fill) noexcept nogil:
    """Return how many operations of the driver a fill is: one for each 4 bytes that differ."""
    cdef int words = <int>(fill.itemsize // 4)
    return 1 if words < 2 or memcmp(fill.item, &fill.item[4], fill.itemsize - 4) == 0 else words


cdef Token fill_region(int name, Region region, const unsigned char *item, Stream stream):
    """Queue a fill of a whole buffer."""
    cdef Operation operation
    cdef own_access access
    cdef Fill fill
    cdef BoxFill boxes
    cdef Token token
    check_region(region)
    refuse_unreachable(region, stream)
    if unlikely(stream.capture is not NULL):
        region = of_present_size(region)
    if unlikely(region.nbytes == 0):
        return nothing_to_do(name, stream, None, region)
    borrow(region, &access, OWN_WRITE)
    shape_fill(&fill, region, item)
    fill.doubles = stream.capture is NULL and not region.host_side
    fill.context = stream.context.raw
    if unlikely(region.box is not NULL):
        describe_fill(&boxes, region, fill.itemsize, fill.item)
        boxes.context = fill.context
        if stream.capture is not NULL:
            refuse_several(&boxes, region)
        token = new_token(stream, None, region)
        if stream.capture is not NULL and name == FILL_ASYNC:   # captures refuse the blocking fill
            name = FILL_BOX
        prepare(&operation, name, &access, 1, fill_box_call, &boxes)
        queue(&operation, stream, region)
        stand_for(token, &operation)
        return token
    token = new_token(stream, None, region)
    prepare(&operation, name, &access, 1, _fill_call, &fill)
    queue(&operation, stream, region)
    if unlikely(stand_for(token, &operation)) and isinstance(token.asked, GraphNode):
        memcpy((<GraphNode>token.asked).settings, fill.item, sizeof(fill.item))
    return token
