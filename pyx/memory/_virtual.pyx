"""Virtual: reserved addresses, and the memory that is mapped to them.

Memory that grows keeps its address: it reserves addresses for all that it may become, and maps
memory to the first of them. The functions here call the driver, and know neither buffers nor the
engine. After a failed call, a span is as before, or has more memory than its buffer uses.

State that outlives a call: how many locks of spans each thread has (the GIL guards it).
"""

cimport cython
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from cudadrv._device cimport Context, Device
from cudadrv._driver cimport (
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_LOCATION_TYPE_DEVICE,
    CUmemAccessDesc, CUmemAllocationProp, CUresult, in_cuMemAddressFree, in_cuMemAddressReserve,
    in_cuMemCreate, in_cuMemGetAllocationGranularity, in_cuMemMap, in_cuMemRelease,
    in_cuMemSetAccess, in_cuMemUnmap, this_thread,
)
from cudadrv._site cimport here, place

from _thread import allocate_lock
from cudadrv._errors import BufferBorrowedError

cdef enum:
    # The most bytes of a piece. Only whole pieces go back to the driver, so pieces must not be too
    # large; but each one costs four driver calls.
    LARGEST_PIECE = 64 << 20


cdef Span *new_span(Context context, size_t nbytes, list devices) except NULL:
    """Make a span without addresses. The memory will be on the first device."""
    cdef Span *span = <Span *>calloc(1, sizeof(Span))
    cdef Device device
    if span is not NULL:
        span.users = <CUmemAccessDesc *>calloc(len(devices), sizeof(CUmemAccessDesc))
    if span is NULL or span.users is NULL:
        free(span)
        raise MemoryError()
    span.context = context.raw
    span.nbytes = nbytes
    for device in devices:
        span.users[span.devices].location.type = CU_MEM_LOCATION_TYPE_DEVICE
        span.users[span.devices].location.id = device.ordinal
        span.users[span.devices].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        span.devices += 1
    return span


cdef CUresult reserve(Span *span) noexcept nogil:
    """Reserve the addresses. Rounds their number up."""
    cdef CUmemAllocationProp properties = _properties(span)
    cdef CUresult status = in_cuMemGetAllocationGranularity(
        span.context, &span.granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM)
    if status == CUDA_SUCCESS:
        span.nbytes = round_up(span, span.nbytes)
        status = in_cuMemAddressReserve(
            span.context, &span.address, span.nbytes, span.granularity, 0, 0)
    return status


cdef CUmemAllocationProp _properties(Span *span) noexcept nogil:
    """Return what the driver has to know of the memory."""
    cdef CUmemAllocationProp properties
    memset(&properties, 0, sizeof(properties))
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = span.users[0].location
    return properties


cdef CUresult map_until(Span *span, size_t end) noexcept nogil:
    """Map memory to all addresses before the offset `end`.

    After a failure, some of it may be mapped, and cannot be used.
    """
    cdef CUresult status = CUDA_SUCCESS
    end = round_up(span, end)
    while status == CUDA_SUCCESS and span.mapped < end:
        status = _map_piece(span, min(end - span.mapped, round_up(span, LARGEST_PIECE)))
    if status == CUDA_SUCCESS and span.usable < span.mapped:
        status = in_cuMemSetAccess(
            span.context, span.address + span.usable, span.mapped - span.usable, span.users,
            span.devices)
        if status == CUDA_SUCCESS:
            span.usable = span.mapped
    return status


cdef CUresult _map_piece(Span *span, size_t nbytes) noexcept nogil:
    """Map new memory behind the memory that is mapped."""
    cdef CUmemAllocationProp properties = _properties(span)
    cdef CUresult released
    cdef CUresult status = _release(span)
    if status == CUDA_SUCCESS and not _has_room(span):
        status = CUDA_ERROR_OUT_OF_MEMORY
    if status == CUDA_SUCCESS:
        status = in_cuMemCreate(span.context, &span.unreleased, nbytes, &properties, 0)
    if status != CUDA_SUCCESS:
        return status
    status = in_cuMemMap(span.context, span.address + span.mapped, nbytes, 0, span.unreleased, 0)
    if status == CUDA_SUCCESS:
        span.mapped += nbytes
        span.ends[span.pieces] = span.mapped
        span.pieces += 1
    released = _release(span)  # mapped memory needs no handle
    return status if status != CUDA_SUCCESS else released


cdef CUresult _release(Span *span) noexcept nogil:
    cdef CUresult status = CUDA_SUCCESS
    if span.unreleased:
        status = in_cuMemRelease(span.context, span.unreleased)
        if status == CUDA_SUCCESS:
            span.unreleased = 0
    return status


cdef bint _has_room(Span *span) noexcept nogil:
    """Make room for another piece. Returns False if there is no host memory."""
    cdef size_t room = 2 * span.room + 4
    cdef size_t *ends
    if span.pieces < span.room:
        return True
    ends = <size_t *>realloc(span.ends, room * sizeof(size_t))
    if ends is NULL:
        return False
    span.ends, span.room = ends, room
    return True


cdef CUresult unmap_from(Span *span, size_t end) noexcept nogil:
    """Unmap the pieces that lie behind the offset `end`. May block."""
    cdef CUresult status = CUDA_SUCCESS
    cdef size_t begin
    while span.pieces and status == CUDA_SUCCESS:
        begin = span.ends[span.pieces - 2] if span.pieces > 1 else 0
        if begin < end:
            break
        status = in_cuMemUnmap(span.context, span.address + begin, span.mapped - begin)
        if status == CUDA_SUCCESS:
            _forget_piece(span, begin)
    return status


cdef void _forget_piece(Span *span, size_t begin) noexcept nogil:
    """Count the last piece, which begins at offset `begin`, as unmapped."""
    span.pieces -= 1
    span.mapped = begin
    span.usable = min(span.usable, begin)


cdef CUresult free_span(Span *span, bint anyway) noexcept nogil:
    """Unmap all memory and free the addresses. May block.

    Stops at the first failure. With `anyway`, continues after a failure, and returns the first
    failure.
    """
    cdef CUresult status = unmap_from(span, 0)
    cdef CUresult next = status
    while next != CUDA_SUCCESS and anyway and span.pieces:
        _forget_piece(span, span.ends[span.pieces - 2] if span.pieces > 1 else 0)
        next = unmap_from(span, 0)
    if status == CUDA_SUCCESS or anyway:
        next = _release(span)
        status = next if status == CUDA_SUCCESS else status
    if span.address and (status == CUDA_SUCCESS or anyway):
        next = in_cuMemAddressFree(span.context, span.address, span.nbytes)
        status = next if status == CUDA_SUCCESS else status
        if next == CUDA_SUCCESS:
            span.address = 0
    return status


cdef void drop_span(Span *span) noexcept nogil:
    """Free the struct, and nothing of the driver's."""
    if span is not NULL:
        free(span.ends)
        free(span.users)
        free(span)


cdef bint can_use(const Span *span, Context context) noexcept:
    """Whether work of a context may use the memory."""
    cdef size_t i
    for i in range(span.devices):
        if span.users[i].location.id == context.device.ordinal:
            return True
    return False


# ---- who may change a span ----
#
# A thread waits for the lock of a span without the GIL, but only if it has no other such lock:
# otherwise two threads could wait for each other.

cdef dict _locks = {}   # how many of these locks a thread has, by its number


@cython.final
cdef class Growth:
    """What only memory that grows has: its span, and the lock for changes of it."""

    def __cinit__(self):
        self.lock = allocate_lock()

    cdef int begin(self, str verb, str label) except -1:
        """Take the lock. Raises if this thread has the lock already, or would have to wait while it
        has another such lock.

        The thread has a lock already if a finalizer runs during `grow`, or if a function of the
        program makes room for `grow`.
        """
        cdef unsigned long thread = this_thread()
        site = here()
        if not self.lock.acquire(False):
            if self.thread == thread or thread in _locks:
                who = "and has called this one" if self.thread == thread else \
                    "in another thread, for which a call that changes the size of a buffer cannot" \
                    " wait"
                raise BufferBorrowedError(
                    f"cannot {verb} {label}:\n"
                    f"  a call at {place(self.site)} is just changing its size, {who}.\n"
                    "  Do it when that call has returned.")
            self.lock.acquire()
        self.thread, self.site = thread, site
        try:
            _locks[thread] = _locks.get(thread, 0) + 1
        except BaseException:
            self.thread = 0
            self.lock.release()
            raise
        return 0

    cdef int end(self) except -1:
        cdef unsigned long thread = self.thread
        _locks[thread] -= 1
        if _locks[thread] == 0:
            del _locks[thread]
        self.thread = 0
        self.lock.release()
        return 0
