"""Loan: memory that is lent to another library."""

from libc.stdint cimport int32_t

from cudadrv._capture cimport Lending
from cudadrv._device cimport Context
from cudadrv._dlpack cimport dl_versioned
from cudadrv._engine cimport own_export, own_guard
from cudadrv._event cimport Event
from cudadrv._region cimport Region
from cudadrv._stream cimport Stream


cdef enum Borrower:
    ON_STREAM       # work that others queue on a stream
    ON_NOTHING      # work that is on no stream
    ON_HOST         # the host, through an array of another library


cdef class Lent(Lending):
    cdef Region region
    cdef Stream stream          # the borrower's stream; an internal stream if it has none
    cdef Borrower borrower
    cdef bint readonly
    cdef Event event            # recorded at beginning and end; None on a non-blocking stream
    cdef bint live              # whether `loan` is open in the engine, or in a capture's engine
    # Counts the blocks and exports that still use the loan. The last one to end shuts the guard and
    # ends the loan.
    cdef own_guard holders
    cdef Lent following         # the next one in the list `_dropped`

    cdef int begin(self, bint waits) except -1
    cdef int begin_in_capture(self, bint waits) except -1
    cdef int use(self, own_export *loan, bint recorded=*, bint waits=*) except -1
    cdef int close(self) except -1
    cdef int end_unrecorded(self, raised, error) except -1
    cdef bint add_holder(self) noexcept
    cdef int let_go(self) except -1


cdef class Loan:
    cdef Region region
    cdef Stream stream          # None if the borrower's work is not on a stream
    cdef Borrower borrower
    cdef bint readonly
    cdef tuple shape
    cdef tuple strides          # in bytes; None if none were given: the array is C-contiguous
    cdef int32_t device_type    # the DLPack device type, such as DL_CUDA
    cdef Lent lent              # the loan that began last; None before the first
    cdef int block              # the state of the `with` block: FRESH, BUSY, ENTERED or LEFT
    cdef int turn               # the state of the block of `back`, if there is one: also FRESH
    cdef Lent entered           # the loan that the block has begun or joined
    cdef Lent shown             # the loan that consumers hold by keeping this object, or None
    cdef object __weakref__

    cdef Lent hold(self)


cdef class Back:
    cdef Loan loan
    cdef Lent lent
    cdef own_export kept    # the engine's record that keeps the memory from being closed
    cdef bint entered


cdef Loan new_loan(
    Region region, Stream stream, Borrower borrower, bint readonly, object shape, object strides,
    object device)
cdef object export_region(
    Region region, object stream, object max_version, object dl_device, object copy)
cdef dl_versioned *export_to_c(Region region) except NULL
cdef Stream stream_of_exchange(Context context)
cdef tuple dlpack_device_of(Region region)
cdef object protocol_handle(Stream stream)
cdef int follow_returns(Region region, Stream stream) except -1
cdef int note_write(Region region, Stream stream, int name, int policy) except -1
