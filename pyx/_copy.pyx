"""Copies between buffers, fills, and loans to other libraries."""

import numpy as np

cimport cython
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.math cimport isinf
from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcpy

from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_SUCCESS, CU_EVENT_DISABLE_TIMING, CUdeviceptr, CUevent, CUresult, CUstream, bind_driver,
    cuEventRecord, cuMemcpyAsync, cuMemcpyDtoDAsync, cuMemcpyDtoHAsync, cuMemcpyHtoDAsync,
    cuMemsetD16Async, cuMemsetD2D32Async, cuMemsetD32Async, cuMemsetD8Async, cudadrv_table, likely,
    unlikely,
)
from cudadrv._engine cimport (
    OWN_READ, OWN_WRITE, engine, own_access, own_export, own_export_close, own_snapshot_drop,
)
from cudadrv._errors cimport report_text
from cudadrv._event cimport new_event
from cudadrv._names cimport LEND
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region, borrow, check_region, plain_array, pointer_of
from cudadrv._release cimport internal_stream
from cudadrv._stream cimport Stream, known_stream, stream_for
from cudadrv._token cimport Token, new_token, stand_for

from cudadrv._device import call_after_wait

bind_driver(&cudadrv_table)

# ---- copies between buffers ----

cdef CUresult copy_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Copy *copy = <Copy *>arguments
    if copy.source_is_host:
        if unlikely(copy.target_is_host):
            return cuMemcpyAsync(copy.target, copy.source, copy.nbytes, stream)
        return cuMemcpyHtoDAsync(copy.target, <void *><size_t>copy.source, copy.nbytes, stream)
    if copy.target_is_host:
        return cuMemcpyDtoHAsync(<void *><size_t>copy.target, copy.source, copy.nbytes, stream)
    return cuMemcpyDtoDAsync(copy.target, copy.source, copy.nbytes, stream)


cdef Token copy_async(int name, Region target, Region source, object stream, str method):
    """Queue a copy of a whole buffer to another one."""
    cdef Operation operation
    cdef own_access accesses[2]
    cdef Copy copy
    cdef Token token
    cdef Stream found
    if likely(isinstance(stream, Stream)) \
            and likely(_is_plain(target, source, (<Stream>stream).context)):
        found = <Stream>stream
    else:
        found = _checked(target, source, stream, method)
        if target.nbytes == 0 or pointer_of(target) == pointer_of(source):
            return nothing_to_do(name, found, source, target)
    borrow(target, &accesses[0], OWN_WRITE)
    borrow(source, &accesses[1], OWN_READ)
    copy.target = pointer_of(target)
    copy.source = pointer_of(source)
    copy.nbytes = target.nbytes
    copy.target_is_host = target.host_side
    copy.source_is_host = source.host_side
    token = new_token(found, source, target)
    prepare(&operation, name, accesses, 2, copy_call, &copy)
    reason = issue(&operation, found)
    if unlikely(reason):
        refuse_operation(&operation, reason, found, (target.describe(), source.describe()))
    stand_for(token, &operation)
    return token


cdef inline bint _is_plain(Region target, Region source, Context context) noexcept:
    """Fast path: whether a copy on a usable stream cannot be refused, and copies something."""
    return target.memory is not None and source.memory is not None \
        and target.memory is not source.memory \
        and target.memory.context is context and source.memory.context is context \
        and target.dtype is source.dtype and target.count == source.count and target.count \
        and not target.memory.state.closed and not source.memory.state.closed \
        and not target.moved and not source.moved \
        and pointer_of(target) != pointer_of(source)


cdef Stream _checked(Region target, Region source, object stream, str method):
    """Check a copy completely, and return its stream."""
    cdef Stream found
    stream = known_stream(stream)
    check_region(target)
    check_region(source)
    found = required_stream(stream, _device_side(target, source), method)
    _check_pair(target, source)
    refuse_other_device(target, found)
    refuse_other_device(source, found)
    return found


cdef int copy_and_wait(int name, Region target, Region source, object stream) except -1:
    """Copy a whole buffer to another one, and wait until the copy is complete."""
    cdef Region device_side
    check_region(target)
    check_region(source)
    _check_pair(target, source)
    device_side = _device_side(target, source)
    found = stream_for(stream, device_side.memory.context)
    copy_async(name, target, source, blocking_stream(found, device_side), None).wait()
    return 0


cdef Token nothing_to_do(int name, Stream stream, Region source, Region target):
    """The token of an operation without bytes: it is complete, and borrows nothing."""
    cdef Operation operation
    cdef Token token
    stream.usable()
    refuse_other_device(target, stream)
    token = new_token(stream, source, target)
    prepare(&operation, name, NULL, 0, NULL, NULL)
    operation.request.issued.clock = NULL
    operation.request.issued.slot = stream.order.slot
    operation.request.issued.seq = 0
    stand_for(token, &operation)
    return token


cdef Region _device_side(Region target, Region source):
    """The buffer whose context a copy runs in: device before managed before page-locked memory."""
    return source if target.host_side or (target.portable and not source.portable) else target


cdef Stream blocking_stream(Stream stream, Region region):
    """The stream of a blocking method: `stream`, else the internal one."""
    return internal_stream(region.memory.context) if stream is None else stream


cdef Stream current_stream(object stream, Region region, str method):
    """As `required_stream`, outside the fast path. Checks the buffer first."""
    stream = known_stream(stream)
    check_region(region)
    found = stream_for(stream, region.memory.context)
    if found is None:
        raise TypeError(
            f"{method} needs a stream: pass one, or call it inside a `with stream:` block")
    return found


cdef int refuse_device(Region region, Stream stream) except -1:
    raise ValueError(
        f"{region.describe()} belongs to {region.memory.context!r}, and {stream!r} to another"
        " context; use a stream of the buffer's context")


cdef int refuse_other_dtype(Region region, object dtype, str other) except -1:
    if region.dtype is not dtype and region.dtype != dtype:
        raise TypeError(
            f"{region.describe()} and {other} have different dtypes; nothing is converted."
            f" Reinterpret the bytes with view({str(dtype)!r}), or convert the data first")
    return 0


cdef int _check_pair(Region target, Region source) except -1:
    if target.dtype is not source.dtype and target.dtype != source.dtype:
        refuse_other_dtype(target, source.dtype, source.describe())
    if target.count != source.count:
        raise ValueError(f"{target.describe()} has {target.count} items, and {source.describe()}"
                         f" {source.count}; copy between parts of the same size: buffer[a:b]")
    if not target.portable and not source.portable \
            and target.memory.context is not source.memory.context:
        raise ValueError(
            f"{target.describe()} belongs to {target.memory.context!r}, and {source.describe()} to"
            f" {source.memory.context!r}; no stream reaches both. Copy to a LockedBuffer, and from"
            " there")
    if target.memory is source.memory and target.start != source.start \
            and target.start < source.start + source.nbytes \
            and source.start < target.start + target.nbytes:
        raise ValueError(f"{target.describe()} and {source.describe()} overlap; a copy needs"
                         " disjoint parts of a buffer")
    return 0


# ---- fills ----

cdef object _plain_dtype = None     # the last argument of _code_of
cdef int _plain_code = 0            # what _code_of returned for it

last_value = None
last_dtype = None


cdef struct Fill:
    CUdeviceptr target
    size_t count
    size_t itemsize
    unsigned char[8] item


cdef int set_new_item(unsigned char *item, object value, Region region) except -1:
    global last_value, last_dtype
    cdef bytes slowly
    dtype = region.dtype
    cdef int code = _code_of(dtype)
    if type(value) is int and _set_integer(item, value, code) \
            or type(value) is float and _set_float(item, value, code):
        memcpy(last_item, item, sizeof(last_item))
        last_value = value
        last_dtype = dtype  # last: dropping the old one can run Python code, which may fill, too
        return 0
    if dtype.itemsize not in (1, 2, 4, 8):
        raise TypeError(
            f"items of dtype {dtype} have {dtype.itemsize} bytes, and the device fills items of 1,"
            " 2, 4 or 8. Copy from an array instead: copy_from(numpy.full(count, value, dtype))")
    if pointer_of(region) % min(region.itemsize, 4):  # possible for dtypes of a smaller alignment
        raise ValueError(
            f"{region.describe()} starts at byte {region.start}, and the device fills items of"
            f" {region.itemsize} bytes only at multiples of {min(region.itemsize, 4)}. Copy from an"
            " array instead: copy_from(numpy.full(count, value, dtype))")
    slowly = _item(value, dtype).tobytes()
    memcpy(item, <const char *>slowly, len(slowly))
    return 0


cdef int _code_of(object dtype) except -1:
    """Kind and size of plain numbers: ``ord("i") << 8 | 4``; 0 for other dtypes."""
    global _plain_dtype, _plain_code
    cdef int code
    if dtype is not _plain_dtype:
        plain = dtype.kind in "iuf" and dtype.isnative and dtype.itemsize in (1, 2, 4, 8)
        code = ord(dtype.kind) << 8 | dtype.itemsize if plain else 0
        _plain_code = code
        _plain_dtype = dtype  # last: dropping the old one can run Python code, which may fill, too
        return code
    return _plain_code


cdef bint _set_integer(unsigned char *item, object value, int code) except -1:
    """Set an integer that fits into 64 bits and into the item; False if it does not."""
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
    memcpy(item, &number, 8)  # little-endian, as all hosts of CUDA are
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
    """A 0-dimensional array that holds the value."""
    item = np.zeros((), dtype)
    if isinstance(value, np.ndarray):
        value = plain_array(value)
        if not value.shape:
            value = value[()]
    if dtype.names is not None and not (isinstance(value, np.void) and value.dtype == dtype):
        if not isinstance(value, tuple) or len(value) != len(dtype.names):
            raise TypeError(f"fill of dtype {dtype} takes a tuple of {len(dtype.names)} values")
        for name, part in zip(dtype.names, value):
            item[name] = _item(part, dtype[name]) if dtype[name].subdtype is None else part
    elif isinstance(value, (int, np.integer)) and dtype.kind in "iufc" \
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
    if item.dtype.kind in "SU" and given.dtype.kind != item.dtype.kind:  # NumPy would take its str
        raise TypeError(f"{value!r} is not of the kind of an item of dtype {item.dtype}")
    _set_quietly(item, given, "same_kind")
    if item.dtype.kind in "fc" and bool(np.isinf(item)) != bool(np.isinf(given)) \
            or item.dtype.kind in "SUV" and given.itemsize > item.itemsize and item != given:
        raise ValueError(f"{value!r} does not fit into an item of dtype {item.dtype}")
    return 0


cdef int _set_quietly(object item, object value, str casting) except -1:
    """Set an item without NumPy's warning of an overflow: the caller checks for it."""
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
    cdef uint32_t low = 0
    cdef uint32_t high = 0
    if fill.itemsize == 1:
        return cuMemsetD8Async(fill.target, fill.item[0], fill.count, stream)
    if fill.itemsize == 2:
        memcpy(&half, fill.item, 2)
        return cuMemsetD16Async(fill.target, half, fill.count, stream)
    memcpy(&low, fill.item, 4)
    if fill.itemsize == 4:
        return cuMemsetD32Async(fill.target, low, fill.count, stream)
    memcpy(&high, &fill.item[4], 4)
    if low == high:
        return cuMemsetD32Async(fill.target, low, 2 * fill.count, stream)
    # The driver cannot fill 8 bytes: the lower halves are filled as one column of a matrix, the
    # upper halves as another one.
    status = cuMemsetD2D32Async(fill.target, 8, low, 1, fill.count, stream)
    if status == CUDA_SUCCESS:
        queued[0] = True
        status = cuMemsetD2D32Async(fill.target + 4, 8, high, 1, fill.count, stream)
    return status


cdef Token fill_region(int name, Region region, const unsigned char *item, Stream stream):
    """Queue a fill of a whole buffer."""
    cdef Operation operation
    cdef own_access access
    cdef Fill fill
    cdef Token token
    check_region(region)
    if unlikely(region.nbytes == 0):
        return nothing_to_do(name, stream, None, region)
    refuse_other_device(region, stream)
    borrow(region, &access, OWN_WRITE)
    fill.target = pointer_of(region)
    fill.count = region.count
    fill.itemsize = region.itemsize
    memcpy(fill.item, item, sizeof(fill.item))
    token = new_token(stream, None, region)
    prepare(&operation, name, &access, 1, _fill_call, &fill)
    reason = issue(&operation, stream)
    if unlikely(reason):
        refuse_operation(&operation, reason, stream, (region.describe(),))
    stand_for(token, &operation)
    return token


# ---- loans: a buffer in the hands of another library ----

cdef enum:
    FRESH   # the block has not begun
    BUSY    # a thread is beginning or ending the block, or it could not be ended
    LIVE    # inside the block
    ENDED   # after the block

cdef list _unended = []     # loans that could not be ended: see end_later
_is_called = False          # whether synchronizations call _end_all_unended


cdef CUresult _record_call(void *event, CUstream stream, bint *queued) noexcept nogil:
    """Record an event: default streams are ordered only with work that the driver was given."""
    return cuEventRecord(<CUevent>event, stream)


cdef CUresult _no_call(void *event, CUstream stream, bint *queued) noexcept nogil:
    return CUDA_SUCCESS


cdef int end_later(Loan loan) except -1:
    """Keep a loan whose end cannot be recorded now: each synchronization tries again."""
    global _is_called
    _unended.append(loan)
    if not _is_called:
        _is_called = True
        call_after_wait(_end_all_unended)
    return 0


def _end_all_unended():
    cdef Loan loan
    for loan in list(_unended):
        try:
            if not loan.stream.context.lost:
                loan.use(NULL)
            _unended.remove(loan)
            loan.end()
        except Exception:  # the next synchronization tries again
            pass


@cython.final
@cython.no_gc_clear
cdef class Loan:
    """Loan(*args, **kwargs)\n--\n
    A buffer that is lent inside a `with` block: see `Buffer.lend`.

    Attributes
    ----------
    stream : Stream
    readonly : bool
        Whether the borrower only reads.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("use buffer.lend(stream)")

    def __dealloc__(self):
        if self.state == LIVE and not cudadrv_table.forked:
            own_export_close(engine, &self.loan)
            report_text("a loan died inside its block, and what was queued there is not known: end"
                        " the block that `with buffer.lend(stream)` begins")

    @property
    def stream(self):
        """The stream that the borrower queues its work on."""
        return self.stream

    @property
    def readonly(self):
        """Whether the borrower only reads."""
        return self.readonly

    def __enter__(self):
        """Begin the loan, and return the buffer's address."""
        if self.region is None:
            raise TypeError("this Loan was never initialized")
        if self.state != FRESH:
            raise RuntimeError("this block has been entered already; call lend() again")
        self.state = BUSY  # before anything that lets other threads in
        try:
            self.region.usable()
            self.event = new_event(self.stream.context, CU_EVENT_DISABLE_TIMING)
            self.use(&self.loan)
        except BaseException:
            self.state = FRESH
            raise
        self.state = LIVE
        return pointer_of(self.region)

    def __exit__(self, kind, exception, traceback):
        """End the loan: what was queued in the block counts as one use of the buffer."""
        if self.state != LIVE:
            raise RuntimeError("this block is not entered, or has ended already")
        self.state = BUSY
        try:
            self.use(NULL)
        except BaseException as error:
            self.end_unrecorded(error if exception is None else exception, error)
            if exception is None:
                raise
        else:
            self.end()

    def __repr__(self):
        if self.region is None:
            return "<Loan, never initialized>"
        return f"<Loan of {self.region.describe()} to {self.stream!r}>"

    cdef int end(self) except -1:
        self.state = ENDED
        own_export_close(engine, &self.loan)
        return 0

    cdef int end_unrecorded(self, raised, error) except -1:
        """End a loan whose event could not be recorded, or keep it for `end_later`."""
        if self.stream.context.lost:
            return self.end()
        try:
            self.use(NULL, False)
        except Exception:
            end_later(self)
            raised.add_note(f"cudadrv: {self.region.describe()} stays lent until a synchronization"
                            " finds that the block's end can be recorded, which it could not be:"
                            f" {error}")
            return 0
        raised.add_note(f"cudadrv: {self.region.describe()} is borrowed by all that was queued on"
                        f" {self.stream!r}: synchronize that; the end of the block could not be"
                        f" recorded: {error}")
        return self.end()

    cdef int use(self, own_export *loan, bint recorded=True) except -1:
        """Issue an operation that stands for everything queued on the stream so far.

        The default streams are ordered with it only if it is `recorded`.
        """
        cdef Operation operation
        cdef own_access access
        borrow(self.region, &access, OWN_READ if self.readonly else OWN_WRITE)
        prepare(&operation, LEND, &access, 1, _record_call if recorded else _no_call,
                self.event.raw)
        operation.request.loan = loan
        operation.request.returns = loan is NULL
        operation.request.passive = not recorded
        reason = issue(&operation, self.stream)
        if reason:
            refuse_operation(&operation, reason, self.stream, (self.region.describe(),))
        own_snapshot_drop(engine, &operation.request.issued)
        return 0


cdef Loan new_loan(Region region, Stream stream, bint readonly):
    cdef Loan loan = Loan.__new__(Loan)
    loan.region = region
    loan.stream = stream
    loan.readonly = readonly
    return loan
