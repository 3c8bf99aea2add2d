"""Loan: memory that another library uses, during a `with` block or while it keeps an array.

A loan begins with its block or its first export, and ends when the block and all exports have
ended. Everything that the borrower has queued on the stream by then counts as one use of the memory
on that stream.

State that outlives a call: loans that could not be ended, loans whose `Loan` has died, and an event
of each context for loans to blocking streams (the GIL guards them).
"""

import operator

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_REFCNT
from libc.stdint cimport int32_t, int64_t, uint64_t

from cudadrv._capture cimport Capture
from cudadrv._closing cimport bury_orphans
from cudadrv._device cimport Context, attend, end_loans_with, is_alive
from cudadrv._dlpack cimport (
    DL_CPU, DL_CUDA, DL_CUDA_HOST, DL_CUDA_MANAGED, DL_IS_COPIED, DL_READ_ONLY, call_on_end,
    check_array, dl_device as device_of_dlpack, dl_versioned, export_capsule, export_tensor,
    keeper_of_ended, pair_of_ints,
)
from cudadrv._driver cimport (
    CUDADRV_LOANS_HAVE_ENDED, cudadrv_set_attention, cudadrv_table,
)
from cudadrv._engine cimport (
    OWN_DEFAULT, OWN_LEAVES, OWN_NON_BLOCKING, OWN_OK, OWN_OPEN, OWN_PER_THREAD, OWN_READ,
    OWN_STAYS, OWN_STRICT, OWN_USES, OWN_WAIT, OWN_WRITE, engine, own_access, own_conflict,
    own_export_close, own_export_open, own_guard_enter, own_guard_leave, own_guard_leave_last,
    own_guard_reopen, own_guard_shut, own_keep_open, own_lend_anyway, own_lend_open, own_snapshot,
    own_snapshot_drop, own_snapshot_has, own_snapshot_take,
)
from cudadrv._errors cimport only_made_by, report_text
from cudadrv._event cimport marker_of
from cudadrv._memory cimport use_on_host
from cudadrv._names cimport GIVE_BACK, LEND
from cudadrv._operation cimport Operation, issue_unusual, prepare, record_call
from cudadrv._refusal cimport refuse_closed, refuse_host
from cudadrv._region cimport (
    Region, aim_at, borrow, of_present_size, pointer_of, queue, refuse_box, refuse_regions,
)
from cudadrv._release cimport last_uses, lending_stream, users_of
from cudadrv._site cimport here
from cudadrv._stream cimport (
    Stream, legacy_stream, per_thread_stream, stream_for, stream_from_handle, takes_calls, user_of,
)

from cudadrv._device import call_after_wait
from cudadrv._errors import CaptureError, OwnershipError

# The most items of an array, and the largest stride: DLPack's numbers are signed, with 64 bits.
cdef object MOST = (1 << 63) - 1

cdef enum:  # the states of a `with` block
    FRESH
    BUSY    # a thread is beginning or ending the block, or has failed to end it
    ENTERED
    LEFT


# ---- one loan, as the engine knows it ----

cdef Lent _lend(Region region, Stream stream, Borrower borrower, bint readonly, bint waits):
    """Begin a loan, or raise. The caller is its first holder."""
    cdef Lent lent = _renewed(region, stream, borrower, readonly)
    if lent is not None:
        return lent
    lent = Lent.__new__(Lent)
    lent.region, lent.readonly, lent.borrower = region, readonly, borrower
    lent.stream = stream if stream is not None else lending_stream(region.memory.context)
    lent.begin(waits)
    lent.holders.users = 1
    return lent


cdef Lent _renewed(Region region, Stream stream, Borrower borrower, bint readonly):
    """Return the loan of an export that has just ended, if a new export can continue it; else None.

    A program that exports a buffer in each round of a loop, always to the same stream, would
    otherwise end and begin the same loan in each round. Until the engine has recorded the end of a
    loan, nothing else can have used the buffer. What the borrower has queued counts when
    the renewed loan ends. Loans that make a driver call at their beginning are not renewed.
    """
    cdef Lent lent
    if borrower != ON_STREAM or not cudadrv_table.attention or not is_alive(stream.context):
        return None
    lent = keeper_of_ended()
    if lent is None:
        return None
    # One reference: neither a Loan nor another export refers to the loan.
    if Py_REFCNT(lent) == 1 and lent.live and lent.holders.users == 1 \
            and lent.region is region and lent.readonly == readonly and lent.stream is stream \
            and lent.borrower == ON_STREAM and lent.event is None and lent.capture is NULL \
            and stream.capture is NULL and stream.order.state == OWN_OPEN and takes_calls(stream):
        lent.loan.site = here()
        return lent
    lent.let_go()
    return None


@cython.final
@cython.no_gc_clear
cdef class Lent:
    """A loan, as the engine knows it. Internal to loans and exports."""

    def __dealloc__(self):
        if self.live and not cudadrv_table.forked:
            self.close()

    cdef int begin(self, bint waits) except -1:
        """Begin the loan, or raise.

        With `waits`, the borrower's stream waits for conflicting work under every policy. A loan
        without a stream is refused if there is conflicting work.
        """
        cdef own_access access
        cdef own_conflict conflict
        self.region.usable()
        if self.borrower == ON_STREAM and self.stream.capture is not NULL:
            self.begin_in_capture(waits)
        elif self.borrower == ON_STREAM:
            if self.stream.order.order != OWN_NON_BLOCKING and self.event is None:
                self.event = marker_of(self.stream.context)
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
        if self.region.memory.gone:     # another thread has given the memory back meanwhile
            self.close()
            refuse_closed(self.region.describe())
        return 0

    cdef int begin_in_capture(self, bint waits) except -1:
        """Begin a loan to a stream that cudadrv captures, which only the plan's engine records."""
        cdef Operation operation
        cdef own_access access
        borrow(self.region, &access, OWN_READ if self.readonly else OWN_WRITE)
        access.effect = OWN_USES
        if waits:
            access.policy = OWN_WAIT
        prepare(&operation, LEND, &access, 1, NULL, NULL)
        source, target = (self.region, None) if self.readonly else (None, self.region)
        reason = (<Capture>self.stream.capture).lend(
            self, self.stream, &operation.request, source, target)
        if reason:
            refuse_regions(&operation, reason, self.stream, self.region, None)
        own_snapshot_drop(engine, &operation.request.issued)
        return 0

    cdef int count(self) except -1:
        return self.use(NULL)

    cdef void outlive_capture(self) noexcept:
        cdef own_access access
        if not self.live:
            return
        if self.holders.users > 0 and not self.stream.context.lost:
            _access_of(self, &access)
            own_lend_anyway(engine, &access, self.loan.site, self.stream.order, &self.loan)
        else:
            self.live = False
            self.region.memory.loans -= 1

    cdef void follow_users(self) noexcept:
        if self.live and self.region.nbytes:    # the borrower's next work runs at once
            _wait_for_users(self)

    cdef int use(self, own_export *loan, bint recorded=True, bint waits=False) except -1:
        """Issue an operation that stands for all that the borrower has queued on the stream so far.

        With `loan`, the operation begins this loan; with NULL, the bytes are lent already, and
        conflicts are not checked. On a blocking stream the operation records an event, because the
        default streams' rules order only what the driver has, and the stream waits for the event.
        Without this wait, the driver could read the source of the borrower's next copy too early:
        see `copy_call`. `recorded` is False if recording has failed before: then the operation
        makes no driver call. Does nothing if the borrower's work is not on a stream.
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
            prepare(&operation, LEND, &access, 1, record_call, self.event.raw)
        else:
            prepare(&operation, LEND, &access, 1, NULL, NULL)
        operation.request.loan = loan
        operation.request.returns = loan is NULL
        operation.request.passive = not recorded
        if self.capture is not NULL:
            reason = (<Capture>self.capture).count_loan(self.stream, &operation.request)
            operation.request.issued.clock = NULL
        else:   # the fast path of `queue` takes no loan
            reason = issue_unusual(&operation, self.stream, NULL, False)
        if reason:
            refuse_regions(&operation, reason, self.stream, self.region, None)
        own_snapshot_drop(engine, &operation.request.issued)
        return 0

    cdef int close(self) except -1:
        """End the loan in the engine. The caller has counted what was queued (`use`)."""
        if self.live:
            self.live = False
            self.region.memory.loans -= 1
            if self.capture is not NULL:
                (<Capture>self.capture).close_loan(self)
            else:
                own_export_close(engine, &self.loan)
        return 0

    cdef int end_unrecorded(self, raised, error) except -1:
        """End the loan although no event could be recorded at its end.

        What was queued still counts as work of the stream. If the engine cannot count it now,
        later synchronizations try again. `error` says why nothing could be recorded. `raised` is
        the exception that propagates, to which a note is added, or None.
        """
        if self.stream.context.lost:
            return self.close()
        if self.capture is not NULL:  # the loan ends with the capture
            return 0
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

    cdef bint add_holder(self) noexcept:
        """Add a holder. Returns False if the loan has ended, or if a thread is just ending it."""
        if not own_guard_enter(&self.holders):
            return False
        if not self.live:   # the loan has ended with its capture
            own_guard_leave(&self.holders)
        return self.live

    cdef int let_go(self) except -1:
        """Remove a holder. The last one ends the loan. If that fails, nothing is raised: see
        `end_unrecorded`.
        """
        if own_guard_leave_last(&self.holders) and self.live:
            try:
                self.use(NULL)
            except Exception as error:
                return self.end_unrecorded(None, error)
            self.close()
        return 0


cdef list _unended = []     # loans that could not be ended
# Linked list of loans of which a Loan was a holder (`Loan.shown`) until that Loan died.
cdef Lent _dropped = None
_is_called = False          # whether synchronizations call `_end_all_unended`


cdef int _end_later(Lent lent) except -1:
    """Keep a loan that cannot be ended now, for example because its stream is capturing.

    Each synchronization tries again to end it, unless it has holders again by then.
    """
    global _is_called
    _unended.append(lent)
    own_guard_reopen(&lent.holders)
    if not _is_called:
        _is_called = True
        call_after_wait(_end_all_unended)
    return 0


def _end_all_unended():
    cdef Lent lent
    for lent in _unended[:]:
        if not lent.live or lent.holders.users > 0:     # ended, or has holders again
            _unended.remove(lent)
            continue
        if not own_guard_shut(&lent.holders, 0):    # another thread is trying
            continue
        try:
            if not lent.stream.context.lost:
                lent.use(NULL)
            lent.close()
            _unended.remove(lent)
        except Exception:  # the next synchronization tries again
            own_guard_reopen(&lent.holders)


cdef int _end_returned() except -1:
    """End the loans that their borrowers have given back."""
    cdef Lent lent = _given_back()
    failure = None
    while lent is not None:     # end all of them, even if one fails
        try:
            lent.let_go()
        except BaseException as error:
            failure = error
        lent = _given_back()
    if failure is not None:
        raise failure
    return 0


cdef Lent _given_back():
    """Return a loan that its borrower has given back, or None. Returns each of them once."""
    global _dropped
    cdef Lent lent = keeper_of_ended()
    if lent is None and _dropped is not None:
        lent = _dropped
        _dropped, lent.following = lent.following, None
    return lent


end_loans_with(_end_returned)
call_on_end(&cudadrv_table.attention)


# ---- loans ----

@cython.final
@cython.no_gc_clear
cdef class Loan:
    """Loan(*args, **kwargs)\n--\n
    A buffer that is lent, or can be lent: what `Buffer.lend` returns.

    ``with loan as address:`` lends the buffer for a block. Other libraries make arrays of the loan
    by DLPack, by the CUDA Array Interface or, if the host can read the memory, by the buffer
    protocol. The loan begins with the block or the first array, and ends when the block has ended
    and the last array is gone. Arrays of the CUDA Array Interface keep this object alive: they
    count as gone when this object dies.

    Attributes
    ----------
    stream : Stream or None
    readonly : bool
    shape : tuple of int
    """

    def __dealloc__(self):
        global _dropped
        if self.lent is None or cudadrv_table.forked:
            return
        if self.block == ENTERED and self.entered.live:
            report_text("a loan died inside its block, and what was queued there is not known: end"
                        " the block that `with buffer.lend(stream)` begins")
            if own_guard_leave_last(&self.entered.holders):
                self.entered.close()
        if self.shown is not None:
            self.shown.following, _dropped = _dropped, self.shown
            cudadrv_set_attention(CUDADRV_LOANS_HAVE_ENDED)

    @property
    def stream(self):
        """The stream on which the borrower works; None if its work is not on a stream."""
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
        """Begin the loan, unless an array has begun it, and return the buffer's address."""
        if self.block != FRESH:
            raise RuntimeError("this block has been entered already; call lend() again")
        self.block = BUSY  # before any step that lets other threads run
        try:
            self.entered = self.hold()
        except BaseException:
            self.block = FRESH
            raise
        self.block = ENTERED
        try:
            PyErr_CheckSignals()  # `Nesting.enter` in _ordering.pyx says why
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return pointer_of(self.region)

    def __exit__(self, kind, exception, traceback):
        """End the block. If no array is left, the loan ends, and what was queued counts as a use.
        """
        cdef Lent lent = self.entered
        if self.block != ENTERED:
            raise RuntimeError("this block is not entered, or has ended already")
        self.block = BUSY
        if not own_guard_leave_last(&lent.holders) or not lent.live:
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
        """Take the buffer back for a block, ``with loan.back():``, while the borrower keeps arrays.

        What the borrower has queued on the stream so far counts as one use of the buffer. Inside
        the block the buffer can be used as if it were not lent, and the borrower must not use it.
        Then the buffer is lent again: the stream waits for what was done inside, under every
        policy.

        Inside the block neither the buffer nor the stream can be closed.

        The beginning of the block raises ValueError if the buffer is not lent, if it is taken back
        already, or if the borrower's work is not on a stream. The end of the block raises
        BufferExportedError if a host view of the buffer is alive, because no stream can wait for
        that, and the other errors of a loan to the stream; if an exception has ended the block,
        they are notes of it. The buffer is lent again even then, because the borrower has its
        arrays: other uses of it are refused until the loan ends. Until that view is gone, the
        borrower's work may conflict with it.

        Driver functions: cuEventRecord, cuStreamWaitEvent.
        """
        cdef Back back = Back.__new__(Back)
        back.loan = self
        return back

    # ---- exports ----

    def __dlpack_device__(self):
        """``(device_type, device_id)`` of DLPack: how consumers see the memory."""
        return device_pair(_device(self.region, self.device_type))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Return a DLPack capsule, for ``from_dlpack`` of another library.

        The loan begins, unless it has begun already.

        ``stream`` is the number of the stream on which the consumer works. It must be the stream
        that the buffer is lent to.

        Raises BufferError for another stream, for another ``dl_device``, for ``copy=True``, for a
        dtype or a shape that DLPack cannot describe, and if the loan is read-only but the
        consumer's DLPack is older than 1.0; TypeError if an argument has the wrong type; ValueError
        inside a block of `Loan.back`. If the loan begins here, also the errors of `Buffer.lend`.
        """
        check_array(self.region.dtype, self.shape)
        if copy:
            raise BufferError("a loan is of the memory itself; copy=True: buffer.__dlpack__ copies")
        device = self.__dlpack_device__()
        if dl_device is not None and pair_of_ints(dl_device, "dl_device") != device:
            raise BufferError(f"the buffer is lent as memory of DLPack's device {device}, not"
                              f" {tuple(dl_device)}; say lend(..., device='cpu') or device='cuda'")
        self._check_consumer(None if stream is None else _stream_number(stream))
        return _capsule_of_loan(self, max_version)

    @property
    def __cuda_array_interface__(self):
        """The CUDA Array Interface, version 3, as a dict.

        The loan begins, unless it has begun already, and lasts until this object is gone.

        Raises AttributeError for memory that is lent with ``device="cpu"``, ValueError
        inside a block of `Loan.back`, and the errors of `Buffer.lend` if the loan begins here.
        """
        cdef Lent lent
        if self.device_type == DL_CPU:
            raise AttributeError("__cuda_array_interface__: this is lent to the host")
        lent = self.hold()
        if self.shown is lent:  # this object is one holder, however often the interface is read
            own_guard_leave(&lent.holders)
        self.shown = lent
        stream = None if self.stream is None else protocol_handle(self.stream)
        return {
            "shape": self.shape, "typestr": self.region.dtype.str, "descr": self.region.dtype.descr,
            "data": (pointer_of(self.region), self.readonly), "strides": self.strides,
            "stream": stream, "version": 3,
        }

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.region is None or not self.region.kind.host_access:
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
        Py_INCREF(lent)     # the next view may be a holder of another loan
        view.internal = <void *>lent

    def __releasebuffer__(self, Py_buffer *view):
        cdef Lent lent = <Lent>view.internal
        Py_DECREF(lent)
        lent.let_go()

    def __repr__(self):
        to = "work on no stream" if self.stream is None else repr(self.stream)
        return f"<Loan of {self.region.describe()} to {to}>"

    def _check_consumer(self, stream):
        """Raise BufferError if a consumer does not work on the stream that the buffer is lent to.

        A consumer that names no stream works on the legacy default stream or, if the memory is
        page-locked, on the host.
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

    cdef Lent hold(self):
        """Begin the loan, unless it has begun, and add a holder, which the caller has to remove.
        """
        cdef Lent lent
        attend()
        if self.turn != FRESH:
            raise ValueError(f"{self!r} is taken back for a block: export it after that")
        if self.lent is not None and self.lent.live and self.borrower == ON_STREAM \
                and self.lent.capture != self.stream.capture:
            raise CaptureError(
                f"{self.region.describe()} was lent before the capture that {self.stream!r} is a"
                " part of, so the graph would not know of this use; lend it anew in the block:"
                " buffer.lend(stream)")
        lent = self.lent
        if lent is None or not lent.add_holder():
            self.lent = lent = _lend(
                self.region, self.stream, self.borrower, self.readonly, False)
        return lent


only_made_by(Loan, "use buffer.lend(stream)")


@cython.final
@cython.no_gc_clear
cdef class Back:
    """Back(*args, **kwargs)\n--\n
    A block in which a lent buffer is taken back: see `Loan.back`."""

    def __dealloc__(self):
        """End a block whose `__exit__` was never called.

        The buffer is lent again without a check, although work of the block may be unfinished.
        """
        if self.entered and not cudadrv_table.forked:
            if not own_guard_shut(&self.lent.holders, 1):
                _lend_anyway(self.lent)
            _end_turn(self)
            if own_guard_leave_last(&self.lent.holders):
                self.lent.close()

    def __enter__(self):
        """Take the buffer back."""
        cdef own_access access
        cdef Lent lent = None if self.loan is None else self.loan.lent
        attend()
        if lent is None or not lent.live or self.loan.turn != FRESH:
            raise ValueError(f"{self.loan!r} is not in anybody's hands, so there is nothing to take"
                             " back")
        if lent.capture is not NULL:
            lent.stream.refuse_captured()
        if lent.borrower != ON_STREAM:
            raise ValueError(f"{self.loan!r} cannot be taken back: nothing says what its borrower"
                             " has done so far")
        if not lent.add_holder():   # so that the loan cannot end before the block does
            raise ValueError(f"{self.loan!r} is just being given back, so there is nothing to take"
                             " back")
        self.loan.turn = BUSY
        try:
            lent.use(NULL)
        except BaseException:
            self.loan.turn = FRESH
            lent.let_go()
            raise
        _access_of(lent, &access)
        own_keep_open(engine, &access, here(), lent.stream.order, &self.kept)
        lent.region.memory.loans += 1
        lent.close()
        self.lent, self.loan.turn, self.entered = lent, ENTERED, True
        try:
            PyErr_CheckSignals()  # `Nesting.enter` in _ordering.pyx says why
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(self, kind, exception, traceback):
        """Lend the buffer to the borrower again."""
        cdef Lent lent = self.lent
        attend()
        if not self.entered:
            raise RuntimeError("this block is not entered, or has ended already")
        self.entered = False
        if own_guard_shut(&lent.holders, 1):    # the last array has gone meanwhile
            _end_turn(self)
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
        finally:
            _end_turn(self)     # after the loan has begun, so that the stream stays open
            lent.let_go()


only_made_by(Back, "use loan.back()")


cdef void _end_turn(Back back) noexcept:
    """End a block of `back` in the engine: the memory can be closed again."""
    back.entered, back.loan.turn = False, FRESH
    back.lent.region.memory.loans -= 1
    own_export_close(engine, &back.kept)


cdef void _access_of(Lent lent, own_access *access) noexcept:
    """Fill in the access of all bytes that the borrower may use."""
    aim_at(lent.region, access)
    access.mode = OWN_READ if lent.readonly else OWN_WRITE
    access.gone = NULL


cdef void _lend_anyway(Lent lent) noexcept:
    """Lend the memory again without a check, because the borrower has its arrays in any case.

    From now on everybody else is refused.
    """
    cdef own_access access
    _access_of(lent, &access)
    own_lend_anyway(engine, &access, here(), lent.stream.order, &lent.loan)
    lent.live = True
    lent.region.memory.loans += 1


cdef int _wait_for_users(Lent lent) except -1:
    """Make the borrower's stream wait for all work on the buffer that a stream can wait for."""
    cdef Region region = lent.region
    try:
        bury_orphans()  # so that a stream that was just dropped has an event to wait for
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
    region = of_present_size(region)    # the buffer may grow during the loan
    loan.region = region
    loan.stream = stream
    loan.borrower = borrower
    loan.readonly = readonly
    if shape is not None or strides is not None:
        refuse_box(region, "lend with another shape")
    elif region.box is not NULL:
        strides = region.steps
    loan.shape = _checked_shape(region, shape)
    loan.strides = _checked_strides(region, loan.shape, strides)
    loan.device_type = _device_type(region, device)
    _check_device_type(borrower, loan.device_type)
    return loan


cdef int _check_device_type(Borrower borrower, int32_t device_type) except -1:
    if borrower == ON_STREAM and device_type == DL_CPU:
        raise ValueError("device='cpu' is for consumers on the host, which wait for no stream:"
                         " buffer.lend(None, device='cpu')")
    return 0


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
    """Return the strides in bytes; None, for C order, if none are given.

    Raises ValueError if the array would reach beyond the buffer or, in C order, does not have all
    of its items.
    """
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
        steps.append(operator.index(step))  # ints of Python: NumPy's could overflow below
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
    """Return DLPack's device type for the memory. `device` is the argument of `Buffer.lend`."""
    if device is None:
        return region.kind.dlpack
    if device == "cuda":
        return DL_CUDA
    if device == "cpu" and region.kind.host_access:
        return DL_CPU
    raise ValueError(f"device is {device!r}, and must be 'cuda' or, where the host can read the"
                     " memory, 'cpu'")


cdef device_of_dlpack _device(Region region, int32_t device_type) except *:
    on_device = device_type in (DL_CUDA, DL_CUDA_MANAGED)
    ordinal = region.memory.context.device.ordinal if on_device else 0
    return device_of_dlpack(device_type, ordinal)


cdef device_of_dlpack _paired   # the device of `_pair`
cdef tuple _pair = (0, 0)       # the last result of device_pair


cdef tuple device_pair(device_of_dlpack device):
    """Return a device in the form of ``__dlpack_device__``."""
    global _paired, _pair
    if device.device_type != _paired.device_type or device.device_id != _paired.device_id:
        _paired, _pair = device, (device.device_type, device.device_id)
    return _pair


cdef int _check_exported(Region region) except -1:
    """Like `check_region`, but does not end returned loans: `_renewed` may use them again."""
    if region.memory is None or region.moved or region.memory.state.unusual \
            or not is_alive(region.memory.context):
        region.usable()
    return 0


cdef tuple dlpack_device_of(Region region):
    """Return what ``__dlpack_device__`` of a buffer returns."""
    _check_exported(region)
    return device_pair(_device(region, _device_type(region, None)))


cdef object protocol_handle(Stream stream):
    """Return the number of a stream in DLPack and in the CUDA Array Interface."""
    if stream.order.kind == OWN_DEFAULT:
        return 1
    return 2 if stream.order.kind == OWN_PER_THREAD else stream.handle


cdef object _capsule_of_loan(Loan loan, object max_version):
    """Make a capsule of a loan. The consumer of the capsule is a holder of the loan."""
    cdef bint versioned = _is_versioned(max_version, loan.readonly)
    strides = _in_items(loan.region, loan.strides)
    return _capsule(loan.hold(), loan.device_type, loan.shape, strides, versioned, False)


cdef bint _is_versioned(object max_version, bint readonly) except -1:
    """Whether a consumer that supports a version of DLPack gets a versioned capsule.

    Raises BufferError if the consumer does not support a versioned capsule, but the buffer is lent
    read-only: other capsules cannot say that.
    """
    cdef bint versioned = False
    cdef tuple version
    if max_version is not None:
        version = pair_of_ints(max_version, "max_version")
        versioned = version[0] >= 1
    if readonly and not versioned:
        raise BufferError("the buffer is lent read-only, which DLPack can say from version 1.0 on;"
                          " the consumer asked for an older one")
    return versioned


cdef object _capsule(
    Lent lent, int32_t device_type, tuple shape, tuple strides, bint versioned, bint copied
):
    """Make a capsule whose consumer is a holder of the loan; the caller has added it as such."""
    cdef Region region = lent.region
    try:
        return export_capsule(
            lent, <void *><size_t>pointer_of(region), _device(region, device_type), region.dtype,
            region.count, shape, strides, versioned, _flags(lent, copied))
    except BaseException:
        lent.let_go()
        raise


cdef dl_versioned *export_to_c(Region region) except NULL:
    """Export a buffer by the C exchange API: a loan to the stream on which consumers work.

    The stream waits for conflicting work under every policy.
    """
    cdef Lent lent
    _check_exported(region)
    region = of_present_size(region)
    stream = stream_of_exchange(region.memory.context)
    check_array(region.dtype, region.sizes)
    strides = _in_items(region, region.steps)
    lent = _lend(region, stream, ON_STREAM, region.read_only, True)
    try:
        return export_tensor(
            lent, <void *><size_t>pointer_of(region),
            _device(region, _device_type(region, None)), region.dtype, region.count, region.sizes,
            strides, _flags(lent, False))
    except BaseException:
        lent.let_go()
        raise


cdef Stream stream_of_exchange(Context context):
    """Return the stream on which consumers of the C exchange API work.

    This is the current stream, else the legacy default stream.
    """
    found = stream_for(None, context)
    return found if found is not None else legacy_stream(context.device)


cdef tuple _in_items(Region region, tuple steps):
    """Return strides as `export_capsule` takes them."""
    if steps is None:
        return None
    strides = []
    for each in steps:
        if each % region.itemsize:
            raise BufferError(f"DLPack counts strides in items, and the rows of {region.describe()}"
                              f" are {each} bytes apart: no whole number of items of"
                              f" {region.itemsize} bytes")
        strides.append(each // region.itemsize)
    return tuple(strides)


cdef uint64_t _flags(Lent lent, bint copied) noexcept:
    return (DL_READ_ONLY if lent.readonly else 0) | (DL_IS_COPIED if copied else 0)


cdef object export_region(
    Region region, object stream, object max_version, object dl_device, object copy
):
    """Do what ``__dlpack__`` of a buffer does: lend the buffer to the consumer's stream.

    The stream waits for conflicting work under every policy.
    """
    cdef Stream found = None
    cdef Borrower borrower = ON_STREAM
    cdef int64_t number = 1 if stream is None else _stream_number(stream)
    _check_exported(region)
    region = of_present_size(region)
    check_array(region.dtype, region.sizes)
    device = None
    wanted = None if dl_device is None else pair_of_ints(dl_device, "dl_device")
    if wanted is not None and wanted != dlpack_device_of(region):
        if wanted == (DL_CPU, 0) and region.kind.host_access:
            device = "cpu"
        elif wanted == (DL_CUDA, region.memory.context.device.ordinal):
            device = "cuda"
        else:
            raise BufferError(f"{region.describe()} is no memory of DLPack's device {wanted}, and"
                              " exporting moves nothing; copy it first")
    kind = _device_type(region, device)
    if stream is None and kind in (DL_CPU, DL_CUDA_HOST):
        borrower = ON_HOST
    elif number == -1:
        borrower = ON_NOTHING
    else:
        found = _consumer_stream(region, number)
    if copy:
        return _copied(region, found, borrower, max_version, kind)
    return _export(region, found, borrower, kind, max_version, False)


cdef object _export(
    Region region, Stream stream, Borrower borrower, int32_t device_type, object max_version,
    bint copied
):
    """Lend a buffer to the consumer of a capsule, and return the capsule."""
    cdef Lent lent
    cdef bint readonly = region.read_only
    _check_device_type(borrower, device_type)
    versioned = _is_versioned(max_version, readonly)
    strides = _in_items(region, region.steps)
    lent = _lend(region, stream, borrower, readonly, True)
    return _capsule(lent, device_type, region.sizes, strides, versioned, copied)


cdef object _copied(
    Region region, Stream stream, Borrower borrower, object max_version, int32_t device_type
):
    """Export a copy of a buffer. Only the consumer has the copy."""
    cdef Region fresh = type(region)(
        region.count, region.dtype, stream=stream, device=region.memory.context.device)
    fresh.sizes = region.sizes
    _check_device_type(borrower, device_type)
    if stream is None:
        fresh.copy_from(region)
    else:
        fresh.copy_from_async(region, stream)
    return _export(fresh, stream, borrower, device_type, max_version, True)


cdef int64_t _stream_number(object stream) except? -2:
    """Return what a consumer passed as ``stream``, which is not None.

    Raises TypeError if it is not an int, BufferError if it is too large for a handle.
    """
    try:
        return stream if type(stream) is int else operator.index(stream)
    except TypeError:
        raise TypeError("stream must be an int or None, as DLPack has it, not"
                        f" {type(stream).__name__}") from None
    except OverflowError:
        raise BufferError(f"stream is {stream}, which is not the handle of a stream") from None


cdef Stream _consumer_stream(Region region, int64_t handle):
    if handle == 0 or handle < -1:
        raise BufferError(f"stream is {handle}; DLPack's word for the legacy default stream is 1,"
                          " for the thread's own 2, and -1 for none")
    if handle == 1:
        found = legacy_stream(region.memory.context.device)
    elif handle == 2:
        found = per_thread_stream(region.memory.context.device)
    else:
        found = stream_from_handle(handle, None)
    if not region.portable and (<Stream>found).context is not region.memory.context:
        raise BufferError(f"{region.describe()} belongs to {region.memory.context!r}, and the"
                          f" consumer's stream to {(<Stream>found).context!r}")
    return found


cdef int follow_returns(Region region, Stream stream) except -1:
    """Make a stream wait for the streams on which bytes of imported memory were given back.

    The owner of the array works on these streams, and may have ordered its work after the returns
    only. If the stream cannot wait for one of them, later uses of the bytes are refused. A capture
    waits for nothing: each launch of its graph is compared with the returns.
    """
    cdef size_t stop = region.start + region.nbytes
    if region.memory.home is None or not region.memory.home.returns or stream.capture is not NULL:
        return 0
    for slot, seq in last_uses(region.memory.state, region.start, stop, GIVE_BACK).items():
        user = None if _has_waited_for(stream, slot, seq) else user_of(slot, seq)
        if user is None or isinstance(user, Stream) and (<Stream>user).capture is not NULL:
            continue    # the stream would become a part of that capture
        try:
            stream.wait(user)
        except (ValueError, OwnershipError):    # another thread's stream, or a capture forbids it
            pass
    return 0


cdef bint _has_waited_for(Stream stream, unsigned int slot, uint64_t seq) noexcept:
    """Whether an operation is known to be ordered before the stream's next one."""
    cdef own_snapshot now
    own_snapshot_take(engine, stream.order, &now)
    has = own_snapshot_has(engine, &now, slot, seq) or slot == stream.order.slot
    own_snapshot_drop(engine, &now)
    return has


cdef int note_write(Region region, Stream stream, int name, int policy) except -1:
    """Count what the owner of imported memory does as a write on a stream.

    With OWN_UNCHECKED, the owner has ordered its work before the stream's later work: the write is
    not compared with earlier uses, but later uses are compared with the write. With OWN_WAIT, the
    stream waits for all earlier uses first, even shared ones; if it cannot wait for one, the write
    is refused.
    """
    cdef Operation operation
    cdef own_access access
    borrow(region, &access, OWN_READ)
    access.mode = OWN_WRITE  # the owner may write what is read-only here
    access.effect = OWN_LEAVES if policy == OWN_WAIT else OWN_STAYS
    access.policy = policy
    prepare(&operation, name, &access, 1, NULL, NULL)
    operation.request.passive = True
    queue(&operation, stream, region)
    own_snapshot_drop(engine, &operation.request.issued)
    return 0
