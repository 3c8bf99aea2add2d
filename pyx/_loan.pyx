"""Loan: memory in the hands of another library, for a block or for as long as that keeps it.

A loan begins with its block or its first export, and ends when the last of these has ended. What
the borrower has queued on the stream by then counts as one use of the memory, queued there.

Outlives a call: loans that could not be ended, and those whose Loan has died (the GIL guards both).
"""

import operator

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint64_t

from cudadrv._device cimport Context, attend, end_loans_with
from cudadrv._dlpack cimport (
    DL_CPU, DL_CUDA, DL_CUDA_HOST, DL_CUDA_MANAGED, DL_IS_COPIED, DL_READ_ONLY, call_on_end,
    check_array, dl_device as device_of_dlpack, dl_versioned, export_capsule, export_tensor,
    keepers_of_ended, pair_of_ints,
)
from cudadrv._driver cimport (
    CUDA_SUCCESS, CU_EVENT_DISABLE_TIMING, CUevent, CUresult, CUstream, bind_driver, cuEventRecord,
    cudadrv_table,
)
from cudadrv._engine cimport (
    OWN_DEFAULT, OWN_LEAVES, OWN_NON_BLOCKING, OWN_OK, OWN_PER_THREAD, OWN_READ, OWN_STAYS,
    OWN_STRICT, OWN_UNCHECKED, OWN_USES, OWN_WAIT, OWN_WRITE, engine, own_access, own_conflict,
    own_export_close, own_export_open, own_keep_open, own_lend_anyway, own_lend_open,
    own_snapshot_drop,
)
from cudadrv._errors cimport report_text
from cudadrv._event cimport Event, new_event
from cudadrv._memory cimport use_on_host
from cudadrv._names cimport GIVE_BACK, LEND
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._refusal cimport refuse_host, refuse_operation
from cudadrv._region cimport Region, borrow, pointer_of
from cudadrv._release cimport DEVICE, LOCKED, last_uses, lending_stream, users_of
from cudadrv._site cimport here
from cudadrv._stream cimport Stream, stream_for, user_of

from cudadrv._device import call_after_wait

bind_driver(&cudadrv_table)

cdef object MOST = (1 << 63) - 1  # numbers of a shape or of strides have 64 bits

cdef enum:  # a block
    FRESH
    BUSY    # a thread begins or ends it
    ENTERED
    LEFT


cdef CUresult _record_call(void *event, CUstream stream, bint *queued) noexcept nogil:
    """Record an event: the rules of the default streams order only work that the driver has."""
    return cuEventRecord(<CUevent>event, stream)


cdef CUresult _no_call(void *event, CUstream stream, bint *queued) noexcept nogil:
    return CUDA_SUCCESS


cdef Event _marker_of(Context context):
    """Return an event that loans record. Nothing waits for it, so that one is enough."""
    if "loans" not in context.defaults:
        context.defaults.setdefault("loans", new_event(context, CU_EVENT_DISABLE_TIMING))
    return context.defaults["loans"]


# ---- one loan, as the engine knows it ----

@cython.final
@cython.no_gc_clear
cdef class Lent:
    """Memory that is lent, with the engine's record of the loan. Internal to loans and exports."""

    def __dealloc__(self):
        if self.live and not cudadrv_table.forked:
            self.close()

    cdef int begin(self, bint waits) except -1:
        """Lend the memory, or raise. With `waits`, the stream waits for conflicting work first."""
        cdef own_access access
        cdef own_conflict conflict
        self.region.usable()
        if self.borrower == ON_STREAM:
            if self.stream.order.order != OWN_NON_BLOCKING and self.event is None:
                self.event = _marker_of(self.stream.context)
            self.use(&self.loan, True, waits)
        else:
            if self.region.memory.unused:
                use_on_host(self.region.memory)
            borrow(self.region, &access, OWN_READ if self.readonly else OWN_WRITE)
            access.policy, access.effect = OWN_STRICT, OWN_USES
            if self.borrower == ON_NOTHING:
                answer = own_lend_open(
                    engine, &access, here(), self.stream.order, &self.loan, &conflict)
            else:
                answer = own_export_open(engine, &access, here(), &self.loan, &conflict)
            if answer != OWN_OK:
                refuse_host(answer, &conflict, "lend" if self.borrower == ON_NOTHING else
                            "read" if self.readonly else "export", self.region.describe())
        self.live = True
        self.region.memory.loans += 1
        return 0

    cdef int use(self, own_export *loan, bint recorded=True, bint waits=False) except -1:
        """Issue an operation that stands for everything that others have queued on the stream.

        On a blocking stream it records an event, because the default streams' rules order only what
        the driver has. `recorded` is False if that has failed.
        """
        cdef Operation operation
        cdef own_access access
        if self.borrower != ON_STREAM:
            return 0
        borrow(self.region, &access, OWN_READ if self.readonly else OWN_WRITE)
        if loan is not NULL:
            access.effect = OWN_USES
        if waits:
            access.policy = OWN_WAIT
        if recorded and self.event is not None:
            prepare(&operation, LEND, &access, 1, _record_call, self.event.raw)
        else:
            prepare(&operation, LEND, &access, 1, _no_call, NULL)
        operation.request.loan = loan
        operation.request.returns = loan is NULL
        operation.request.passive = not recorded
        reason = issue(&operation, self.stream)
        if reason:
            refuse_operation(&operation, reason, self.stream, (self.region.describe(),))
        own_snapshot_drop(engine, &operation.request.issued)
        return 0

    cdef int close(self) except -1:
        """Tell the engine that the loan has ended. What was queued is recorded already."""
        if self.live:
            self.live = False
            self.region.memory.loans -= 1
            own_export_close(engine, &self.loan)
        return 0

    cdef int end_unrecorded(self, raised, error) except -1:
        """End the loan after recording its end has failed with `error`.

        What was queued then counts as work of the stream. Notes are added to `raised`, if there is
        an exception.
        """
        if self.stream.context.lost:
            return self.close()
        try:
            self.use(NULL, False)
        except Exception:
            _end_later(self)
            if raised is not None:
                raised.add_note(f"cudadrv: {self.region.describe()} stays lent until a"
                                " synchronization finds that the block's end can be recorded, which"
                                f" it could not be: {error}")
            return 0
        if raised is not None:
            raised.add_note(f"cudadrv: {self.region.describe()} is borrowed by all that was queued"
                            f" on {self.stream!r}: synchronize that; the end of the block could not"
                            f" be recorded: {error}")
        return self.close()

    cdef int let_go(self) except -1:
        """End the use of one holder. The last one ends the loan; a failure is not raised."""
        self.holders -= 1
        if self.holders == 0 and self.live:
            try:
                self.use(NULL)
            except Exception as error:
                return self.end_unrecorded(None, error)
            self.close()
        return 0


cdef list _unended = []     # loans that could not be ended
cdef Lent _dropped = None   # list of loans whose Loan object has died while it was their holder
_is_called = False          # whether synchronizations call `_end_all_unended`


cdef int _end_later(Lent lent) except -1:
    """Let each synchronization try to end a loan, for example because its stream is capturing."""
    global _is_called
    _unended.append(lent)
    if not _is_called:
        _is_called = True
        call_after_wait(_end_all_unended)
    return 0


def _end_all_unended():
    cdef Lent lent
    for lent in list(_unended):
        try:
            if not lent.stream.context.lost:
                lent.use(NULL)
            _unended.remove(lent)
            lent.close()
        except Exception:  # the next synchronization tries again
            pass


cdef int _end_returned() except -1:
    """End the loans that their borrowers have given back."""
    global _dropped
    cdef Lent lent
    given_back = keepers_of_ended()
    while _dropped is not None:
        lent = _dropped
        _dropped, lent.following = lent.following, None
        given_back.append(lent)
    failure = None
    for lent in given_back:  # all of them, whatever happens to one
        try:
            lent.let_go()
        except BaseException as error:
            failure = error
    if failure is not None:
        raise failure
    return 0


end_loans_with(_end_returned)
call_on_end(&cudadrv_table.attention)


# ---- loans ----

@cython.final
@cython.no_gc_clear
cdef class Loan:
    """Loan(*args, **kwargs)\n--\n
    A buffer that is lent: see `Buffer.lend`.

    A block (``with loan as address:``), or an array that another library makes of it by DLPack,
    by the CUDA Array Interface or, where the host can read the memory, by the buffer protocol. The
    loan begins with the first of these, and ends when the block is left and the last array is gone.

    Attributes
    ----------
    stream : Stream or None
    readonly : bool
    shape : tuple of int
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("use buffer.lend(stream)")

    def __dealloc__(self):
        global _dropped
        if self.lent is None or cudadrv_table.forked:
            return
        if self.block == ENTERED and self.entered.live:
            report_text("a loan died inside its block, and what was queued there is not known: end"
                        " the block that `with buffer.lend(stream)` begins")
            self.entered.holders -= 1
            if self.entered.holders == 0:
                self.entered.close()
        if self.shown is not None:
            self.shown.following, _dropped = _dropped, self.shown
            cudadrv_table.attention = 1

    @property
    def stream(self):
        """The stream whose work is counted as one use of the buffer; None: work on no stream."""
        return self.stream

    @property
    def readonly(self):
        """Whether the borrower only reads."""
        return self.readonly

    @property
    def shape(self):
        """The shape of the array that consumers see."""
        return self.shape

    def __enter__(self):
        """Begin the loan, and return the buffer's address."""
        if self.region is None:
            raise TypeError("this Loan was never initialized")
        if self.block != FRESH:
            raise RuntimeError("this block has been entered already; call lend() again")
        self.block = BUSY  # before anything that lets other threads in
        try:
            self.entered = self.hold()
        except BaseException:
            self.block = FRESH
            raise
        self.block = ENTERED
        try:
            PyErr_CheckSignals()  # as in _ordering.pyx
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return pointer_of(self.region)

    def __exit__(self, kind, exception, traceback):
        """End the block: what was queued in it counts as one use, unless the loan goes on."""
        cdef Lent lent = self.entered
        if self.block != ENTERED:
            raise RuntimeError("this block is not entered, or has ended already")
        self.block = BUSY
        lent.holders -= 1
        if lent.holders or not lent.live:
            self.block = LEFT
            return
        try:
            lent.use(NULL)
        except BaseException as error:
            lent.end_unrecorded(error if exception is None else exception, error)
            if exception is None:
                raise
        else:
            self.block = LEFT
            lent.close()

    def back(self):
        """Take the buffer back for a block, ``with loan.back():``, while others keep arrays of it.

        What the borrower has queued on the stream so far counts as one use of the buffer. Inside
        the block the buffer is used as if it were not lent, and the borrower must not use it. At
        the end, the stream waits for what was done inside, under every policy.

        Inside the block the buffer cannot be closed.

        Raises ValueError if the buffer is not lent, or for a loan that is on no stream. The end of
        the block raises BufferExportedError if a host view of the buffer is alive, which no stream
        can wait for, and the other errors of a loan to the stream. The buffer is lent again all the
        same, because the borrower has its arrays: every later use of it is refused until the loan
        ends. What the borrower does before that view is gone may conflict with the view.

        Driver functions: cuEventRecord, cuStreamWaitEvent.
        """
        cdef Back back = Back.__new__(Back)
        if self.region is None:
            raise TypeError("this Loan was never initialized")
        back.loan = self
        return back

    # ---- exports ----

    def __dlpack_device__(self):
        """``(device_type, device_id)`` of DLPack."""
        return device_pair(_device(self.region, self.device_type))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A DLPack capsule, for ``from_dlpack`` of another library. The loan begins, if it has not.

        ``stream`` is the stream of the consumer, and must be the one to which the buffer is lent.
        Raises BufferError if it is another one, if DLPack cannot describe the array, or for
        ``copy=True``; and what `Buffer.lend` raises.
        """
        if self.region is None:
            raise TypeError("this Loan was never initialized")
        check_array(self.region.dtype, self.shape)
        if copy:
            raise BufferError("a loan is of the memory itself; copy=True: buffer.__dlpack__ copies")
        device = self.__dlpack_device__()
        if dl_device is not None and pair_of_ints(dl_device, "dl_device") != device:
            raise BufferError(f"the buffer is lent as memory of DLPack's device {device}, not"
                              f" {tuple(dl_device)}; say lend(..., device='cpu') or device='cuda'")
        self._check_consumer(_stream_number(stream))
        return _capsule(self, max_version, False, False)

    @property
    def __cuda_array_interface__(self):
        """The CUDA Array Interface, version 3. From then on, this object holds the loan."""
        cdef Lent lent
        if self.region is None:
            raise TypeError("this Loan was never initialized")
        if self.region.host_side and self.device_type == DL_CPU:
            raise AttributeError("__cuda_array_interface__: this is lent to the host")
        lent = self.hold()
        if self.shown is lent:
            lent.holders -= 1  # the object is one holder, even if this is read several times
        self.shown = lent
        stream = None if self.stream is None else protocol_handle(self.stream)
        return {
            "shape": self.shape, "typestr": self.region.dtype.str, "descr": self.region.dtype.descr,
            "data": (pointer_of(self.region), self.readonly), "strides": self.strides,
            "stream": stream, "version": 3,
        }

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.region is None or self.region.kind == DEVICE:
            raise BufferError("the host cannot read memory of a device; copy it: buffer.to_numpy()")
        if self.stream is not None:
            raise BufferError(f"the buffer is lent to {self.stream!r}, and a memoryview is read on"
                              " the host, which waits for no stream: buffer.lend(None)")
        lent = self.hold()
        try:
            PyBuffer_FillInfo(view, self, <void *><size_t>pointer_of(self.region),
                              self.region.nbytes, self.readonly, flags)
        except BaseException:
            lent.let_go()
            raise

    def __releasebuffer__(self, Py_buffer *view):
        if self.lent is not None:
            self.lent.let_go()

    def __repr__(self):
        if self.region is None:
            return "<Loan, never initialized>"
        to = "work on no stream" if self.stream is None else repr(self.stream)
        return f"<Loan of {self.region.describe()} to {to}>"

    def _check_consumer(self, stream):
        """Refuse a consumer that works on another stream than the one of the loan.

        A consumer that names no stream works on the legacy default stream, or on the host if that
        is where the memory is.
        """
        if self.stream is None:
            if stream not in (None, -1):
                raise BufferError("the buffer is lent to work on no stream, and the consumer works"
                                  f" on stream {stream:#x}: lend it to that one")
        elif stream is None and self.device_type == DL_CUDA_HOST:
            raise BufferError(f"the buffer is lent to {self.stream!r}, and the consumer works on"
                              " the host, which waits for no stream: buffer.lend(None)")
        elif (1 if stream is None else stream) != protocol_handle(self.stream):
            raise BufferError(f"the buffer is lent to {self.stream!r}, and the consumer works on"
                              f" stream {1 if stream is None else stream:#x}; make that one current"
                              " there, or lend the buffer to the consumer's: buffer.lend(stream)")

    cdef Lent hold(self, bint waits=False):
        """Begin the loan unless it has begun, and add a holder: the caller calls `let_go` later."""
        cdef Lent lent
        if self.taken:
            raise ValueError(f"{self!r} is taken back for a block: export it after that")
        attend()
        if self.lent is None or not self.lent.live:
            lent = Lent.__new__(Lent)
            lent.region, lent.readonly, lent.borrower = self.region, self.readonly, self.borrower
            lent.stream = self.stream if self.stream is not None \
                else lending_stream(self.region.memory.context)
            lent.begin(waits)
            self.lent = lent
        self.lent.holders += 1
        return self.lent


@cython.final
@cython.no_gc_clear
cdef class Back:
    """Back(*args, **kwargs)\n--\n
    A block in which a lent buffer can be used as if it were not lent: see `Loan.back`."""

    def __init__(self, *args, **kwargs):
        raise TypeError("use loan.back()")

    def __dealloc__(self):
        """End a block whose `__exit__` was not called. Work of the block may be unfinished."""
        if self.entered and not cudadrv_table.forked:
            _end_turn(self)
            if self.lent.holders and not self.lent.live:
                _lend_anyway(self.lent)

    def __enter__(self):
        """Take the buffer back."""
        cdef own_access access
        cdef Lent lent = None if self.loan is None else self.loan.lent
        attend()
        if lent is None or not lent.live or self.loan.taken:
            raise ValueError(f"{self.loan!r} is not in anybody's hands, so there is nothing to take"
                             " back")
        if lent.borrower != ON_STREAM:
            raise ValueError(f"{self.loan!r} cannot be taken back: nothing says what its borrower"
                             " has done so far")
        lent.use(NULL)
        lent.close()
        _access_of(lent, &access)
        own_keep_open(engine, &access, here(), lent.stream.order, &self.kept)
        lent.region.memory.loans += 1
        self.lent = lent
        self.loan.taken = self.entered = True
        try:
            PyErr_CheckSignals()  # as in _ordering.pyx
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(self, kind, exception, traceback):
        """Give it to the borrower again."""
        cdef Lent lent = self.lent
        if not self.entered:
            raise RuntimeError("this block is not entered, or has ended already")
        attend()
        _end_turn(self)
        if lent.holders == 0:  # the last array has died meanwhile
            return
        try:
            lent.begin(True)
        except BaseException as error:
            if not lent.live and not lent.stream.context.lost:
                _lend_anyway(lent)
                _wait_for_users(lent)
            if exception is None or not isinstance(error, Exception):
                raise
            exception.add_note(f"cudadrv: {error}")


cdef void _end_turn(Back back) noexcept:
    """End what keeps the memory open while the buffer is taken back."""
    back.entered = back.loan.taken = False
    back.lent.region.memory.loans -= 1
    own_export_close(engine, &back.kept)


cdef void _access_of(Lent lent, own_access *access) noexcept:
    """Fill in an access of everything that the borrower may use."""
    access.memory = lent.region.memory.state
    access.start = lent.region.start
    access.stop = lent.region.start + lent.region.nbytes
    access.mode = OWN_READ if lent.readonly else OWN_WRITE


cdef void _lend_anyway(Lent lent) noexcept:
    """Lend memory without a check, because the borrower has it already.

    Later uses by others are refused.
    """
    cdef own_access access
    _access_of(lent, &access)
    own_lend_anyway(engine, &access, here(), lent.stream.order, &lent.loan)
    lent.live = True
    lent.region.memory.loans += 1


cdef int _wait_for_users(Lent lent) except -1:
    """Make the stream wait for the work on the buffer that it can wait for."""
    cdef Region region = lent.region
    try:
        for work in users_of(region.memory.state, region.start, region.start + region.nbytes):
            if work is not None:
                lent.stream.wait_for(work)
    except Exception:  # the caller raises the reason why the buffer could not be lent
        pass
    return 0


cdef Loan new_loan(
    Region region, Stream stream, Borrower borrower, bint readonly, object shape, object strides,
    object device
):
    cdef Loan loan = Loan.__new__(Loan)
    loan.region = region
    loan.stream = stream
    loan.borrower = borrower
    loan.readonly = readonly
    loan.shape = _checked_shape(region, shape)
    loan.strides = _checked_strides(region, loan.shape, strides)
    loan.device_type = _device_type(region, device)
    if borrower == ON_STREAM and loan.device_type == DL_CPU:
        raise ValueError("device='cpu' is for consumers on the host, which wait for no stream:"
                         " buffer.lend(None, device='cpu')")
    return loan


cdef tuple _checked_shape(Region region, object shape):
    if shape is None:
        shape = region.shape
    sizes = []
    items = 1
    for size in (shape if isinstance(shape, (tuple, list)) else (shape,)):
        sizes.append(operator.index(size))
        if sizes[-1] < 0:
            raise ValueError(f"shape is {shape}, and no size may be negative")
        items *= sizes[-1] or 1
    if items > MOST:
        raise ValueError(f"shape is {shape}, and no array is so large")
    return tuple(sizes)


cdef tuple _checked_strides(Region region, tuple shape, object strides):
    """Return the strides as a tuple, or None for C order. Raises if they leave the buffer."""
    last = 0
    empty = 0 in shape
    if strides is None:
        items = 1
        for size in shape:
            items *= size
        if items != region.count:
            raise ValueError(f"{region.describe()} has {region.count} items, and shape {shape} has"
                             f" {items}")
        return None
    steps = []
    for step in strides:
        steps.append(operator.index(step))  # Python's numbers: the sum of NumPy's might wrap around
    strides = tuple(steps)
    if len(strides) != len(shape):
        raise ValueError(f"strides has {len(strides)} numbers, and shape {len(shape)}")
    for size, step in zip(shape, strides, strict=True):
        if step < 0 or step % region.itemsize:
            raise ValueError(f"strides are bytes: multiples of {region.itemsize}, not negative;"
                             f" they are {strides}")
        if step > MOST:
            raise ValueError(f"strides are {strides}, and no array is so large")
        last += (size - 1) * step
    if not empty and last + region.itemsize > region.nbytes:
        raise ValueError(f"shape {shape} with strides {strides} needs {last + region.itemsize}"
                         f" bytes, and {region.describe()} has {region.nbytes}")
    return strides


cdef int32_t _device_type(Region region, object device) except -1:
    """Return DLPack's device type of the memory; `device` is the argument of `lend`."""
    if device is None:
        return DL_CUDA if region.kind == DEVICE else \
            DL_CUDA_HOST if region.kind == LOCKED else DL_CUDA_MANAGED
    if device == "cuda":
        return DL_CUDA
    if device == "cpu" and region.kind != DEVICE:
        return DL_CPU
    raise ValueError(f"device is {device!r}, and must be 'cuda' or, where the host can read the"
                     " memory, 'cpu'")


cdef device_of_dlpack _device(Region region, int32_t device_type) except *:
    if region is None:
        raise TypeError("this Loan was never initialized")
    on_device = device_type in (DL_CUDA, DL_CUDA_MANAGED)
    ordinal = region.memory.context.device.ordinal if on_device else 0
    return device_of_dlpack(device_type, ordinal)


cdef tuple device_pair(device_of_dlpack device):
    """Return a device as the tuple that ``__dlpack_device__`` returns."""
    return device.device_type, device.device_id


cdef tuple dlpack_device_of(Region region):
    """``__dlpack_device__`` of a buffer."""
    region.usable()
    return device_pair(_device(region, _device_type(region, None)))


cdef object protocol_handle(Stream stream):
    """Return a stream as DLPack and the CUDA Array Interface name it: 1, 2 or the handle."""
    if stream.order.kind == OWN_DEFAULT:
        return 1
    return 2 if stream.order.kind == OWN_PER_THREAD else stream.handle


cdef object _capsule(Loan loan, object max_version, bint waits, bint copied):
    """Return a capsule of a loan. Its consumer is a holder of the loan from now on."""
    cdef Lent lent
    cdef bint versioned = max_version is not None \
        and pair_of_ints(max_version, "max_version")[0] >= 1
    if loan.readonly and not versioned:
        raise BufferError("the buffer is lent read-only, which DLPack can say from version 1.0 on;"
                          " the consumer asked for an older one")
    strides = _strides_in_items(loan)
    lent = loan.hold(waits)
    try:
        return export_capsule(
            lent, <void *><size_t>pointer_of(loan.region), _device(loan.region, loan.device_type),
            loan.region.dtype, loan.shape, strides, versioned, _flags(loan, copied))
    except BaseException:
        lent.let_go()
        raise


cdef dl_versioned *export_to_c(Region region) except NULL:
    """Export a buffer by the C exchange API: a loan to the current stream, which its consumer uses.
    """
    cdef Lent lent
    cdef Loan loan
    region.usable()
    loan = new_loan(region, stream_of_exchange(region.memory.context), ON_STREAM, region.read_only,
                    None, None, None)
    check_array(region.dtype, loan.shape)
    strides = _strides_in_items(loan)
    lent = loan.hold(True)
    try:
        return export_tensor(
            lent, <void *><size_t>pointer_of(region), _device(region, loan.device_type),
            region.dtype, loan.shape, strides, _flags(loan, False))
    except BaseException:
        lent.let_go()
        raise


cdef Stream stream_of_exchange(Context context):
    """The stream on which consumers of the C exchange API work: the current one, else the legacy
    default stream.
    """
    found = stream_for(None, context)
    return found if found is not None else Stream.legacy(device=context.device)


cdef tuple _strides_in_items(Loan loan):
    strides = []
    step = 1
    for size in reversed(loan.shape):
        strides.append(step)
        step *= size
    if loan.strides is None:
        return tuple(reversed(strides))
    strides = []
    for each in loan.strides:
        strides.append(each // loan.region.itemsize)
    return tuple(strides)


cdef uint64_t _flags(Loan loan, bint copied) noexcept:
    return (DL_READ_ONLY if loan.readonly else 0) | (DL_IS_COPIED if copied else 0)


cdef object export_region(
    Region region, object stream, object max_version, object dl_device, object copy
):
    """Implement ``__dlpack__`` of a buffer: lend it to the consumer's stream, which waits for
    conflicting work.
    """
    cdef Stream found = None
    cdef Borrower borrower = ON_STREAM
    region.usable()
    check_array(region.dtype, region.shape)
    device = None
    stream = _stream_number(stream)
    wanted = None if dl_device is None else pair_of_ints(dl_device, "dl_device")
    if wanted is not None and wanted != dlpack_device_of(region):
        if wanted == (DL_CPU, 0) and region.kind != DEVICE:
            device = "cpu"
        elif wanted == (DL_CUDA, region.memory.context.device.ordinal):
            device = "cuda"
        else:
            raise BufferError(f"{region.describe()} is no memory of DLPack's device {wanted}, and"
                              " exporting moves nothing; copy it first")
    kind = _device_type(region, device)
    if stream is None and kind in (DL_CPU, DL_CUDA_HOST):
        borrower = ON_HOST
    elif stream == -1:
        borrower = ON_NOTHING
    else:
        found = _consumer_stream(region, 1 if stream is None else stream)
    if copy:
        return _copied(region, found, borrower, max_version, device)
    loan = new_loan(region, found, borrower, region.read_only, None, None, device)
    return _capsule(loan, max_version, True, False)


cdef object _copied(
    Region region, Stream stream, Borrower borrower, object max_version, object device
):
    """Return a capsule of a fresh copy, which only the consumer has."""
    cdef Region fresh = type(region)(
        region.count, region.dtype, stream=stream, device=region.memory.context.device)
    fresh.sizes = region.sizes
    loan = new_loan(fresh, stream, borrower, False, None, None, device)
    if stream is None:
        fresh.copy_from(region)
    else:
        fresh.copy_from_async(region, stream)
    return _capsule(loan, max_version, True, True)


cdef object _stream_number(object stream):
    """Return what a consumer passed as ``stream``, as an int or None."""
    try:
        return None if stream is None else operator.index(stream)
    except TypeError:
        raise TypeError("stream must be an int or None, as DLPack has it, not"
                        f" {type(stream).__name__}") from None


cdef Stream _consumer_stream(Region region, handle):
    if handle == 0 or handle < -1:
        raise BufferError(f"stream is {handle}; DLPack's word for the legacy default stream is 1,"
                          " for the thread's own 2, and -1 for none")
    if handle == 1:
        found = Stream.legacy(device=region.memory.context.device)
    elif handle == 2:
        found = Stream.per_thread(device=region.memory.context.device)
    else:
        found = Stream.from_handle(handle)
    if not region.portable and (<Stream>found).context is not region.memory.context:
        raise BufferError(f"{region.describe()} belongs to {region.memory.context!r}, and the"
                          f" consumer's stream to {(<Stream>found).context!r}")
    return found


cdef int follow_returns(Region region, Stream stream) except -1:
    """Let a stream wait for the streams to which the imported bytes were given back earlier.

    The owner has ordered the array after them, but the engine does not know that.
    """
    cdef size_t stop = region.start + region.nbytes
    if region.memory.home is None or not region.memory.home.returned:
        return 0
    for slot, seq in last_uses(region.memory.state, region.start, stop, GIVE_BACK).items():
        user = None if slot == stream.order.slot else user_of(slot, seq)
        if user is not None:
            try:
                stream.wait(user)
            except ValueError:  # another thread's default stream: uses are refused, and say so
                pass
    return 0


cdef int note_write(Region region, Stream stream, int name, int policy) except -1:
    """Count what the owner of imported memory does as a write on a stream, without a driver call.

    OWN_UNCHECKED: the owner has ordered its work before the stream; other uses of the memory are
    checked when they are made. OWN_WAIT: the stream waits for all uses first, also for shared ones.
    What it cannot wait for is refused.
    """
    cdef Operation operation
    cdef own_access access
    borrow(region, &access, OWN_READ)
    access.mode = OWN_WRITE  # the owner may write what is read-only here
    access.effect = OWN_LEAVES if policy == OWN_WAIT else OWN_STAYS
    access.policy = policy
    prepare(&operation, name, &access, 1, _no_call, NULL)
    operation.request.passive = True
    reason = issue(&operation, stream)
    if reason:
        refuse_operation(&operation, reason, stream, (region.describe(),))
    own_snapshot_drop(engine, &operation.request.issued)
    return follow_returns(region, stream) if policy == OWN_UNCHECKED else 0
