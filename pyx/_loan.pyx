"""Loan: a buffer in the hands of another library, which queues work on one stream."""

cimport cython

from cudadrv._driver cimport (
    CU_EVENT_DISABLE_TIMING, CUDA_SUCCESS, CUevent, CUresult, CUstream, bind_driver, cudadrv_table,
    cuEventRecord,
)
from cudadrv._errors cimport report_text
from cudadrv._event cimport new_event
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._operation_names cimport LEND
from cudadrv._ownership cimport (
    OWN_READ, OWN_WRITE, engine, own_access, own_export, own_export_close, own_snapshot_drop,
)
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region, borrow, pointer_of
from cudadrv._stream cimport Stream

from cudadrv._context import call_after_wait

bind_driver(&cudadrv_table)

cdef enum:
    FRESH
    BUSY    # a thread begins or ends it, or it could not be ended
    LIVE
    ENDED

cdef list _unended = []     # loans that could not be ended: see end_later
_is_called = False          # `end_all_unended`, by synchronizations


cdef CUresult _record_call(void *event, CUstream stream, bint *queued) noexcept nogil:
    """The order of the default streams holds for what the driver has, so it gets something."""
    return cuEventRecord(<CUevent>event, stream)


cdef CUresult _no_call(void *event, CUstream stream, bint *queued) noexcept nogil:
    return CUDA_SUCCESS


cdef int end_later(Loan loan) except -1:
    """Its stream is capturing, say: each synchronization tries to end it, and it lives till then.
    """
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
    A buffer that is lent for the length of a `with` block: see `Buffer.lend`.

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
        """The stream whose work is counted as one use of the buffer."""
        return self.stream

    @property
    def readonly(self):
        """Whether the borrower only reads."""
        return self.readonly

    def __enter__(self):
        """Begin the loan, and give the buffer's address."""
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
        """End it without the driver's record: what was queued counts as work of the stream."""
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
        """An operation of the stream that stands for all that others queue on it up to now.

        The default streams' rules count it if the driver has something of it.
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
