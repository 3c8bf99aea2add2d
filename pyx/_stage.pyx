"""Stage: a page-locked block of the library's own, through which ordinary memory reaches the GPU.

The driver never sees the address of ordinary memory: what it would do with it, and when, differs by
size and platform, and a copy that is interrupted must not touch it any more.
"""

cimport cython

from cudadrv._cache cimport trim_caches
from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._copy cimport copy_call, refuse_other_device
from cudadrv._driver cimport (
    CU_EVENT_DISABLE_TIMING, CU_MEMHOSTALLOC_PORTABLE, CU_STREAM_CAPTURE_MODE_RELAXED,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUevent, CUresult, CUstream,
    CUstreamCaptureMode, bind_driver, cudadrv_table, cuEventRecord, cuMemHostAlloc,
    cuThreadExchangeStreamCaptureMode,
)
from cudadrv._event cimport new_event
from cudadrv._operation cimport Operation, ask, prepare
from cudadrv._operation_names cimport COPY_TO
from cudadrv._ownership cimport OWN_READ, OWN_WRITE, engine, own_known
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region, borrow, pointer_of
from cudadrv._release cimport LOCKED, drain, release_later
from cudadrv._stream cimport Stream
from cudadrv._users cimport is_complete

bind_driver(&cudadrv_table)

cdef enum:
    SMALLEST = 1 << 16
    STEP = 1 << 20              # larger blocks are multiples of this
    MOST_IDLE = 64 << 20        # bytes of stages that a context keeps
    MOST_BUSY = 4               # stages in use, after which a call looks at no more


@cython.final
@cython.no_gc_clear
cdef class Stage:
    """A page-locked block, and the last copy that uses it.

    It is in the list of its context, or a call has taken it out and uses it: never both.
    """

    def __dealloc__(self):
        if self.data is not NULL:
            self.context.stage_bytes -= self.nbytes
            release_later(LOCKED, <CUdeviceptr><size_t>self.data, NULL, self.context, None)

    cdef bint is_free(self) except -1:
        """Asks the driver; nobody learns anything from the answer."""
        if self.last.seq == 0 or own_known(engine, self.last.slot, self.last.seq):
            return True
        return self.last.marked and is_complete(self.event)


# ---- the stages of a context ----

cdef enum:
    OLDEST = 0
    NEWEST = -1


cdef Stage _stage_at(Context context, Py_ssize_t end):
    """Take one out of the list, so that threads cannot share it; None if there is none."""
    cdef Stage stage
    if not context.stages:
        return None
    stage = context.stages.pop(end)
    context.staged -= stage.nbytes
    return stage


cdef int _keep_stage(Stage stage) except -1:
    stage.context.stages.append(stage)
    stage.context.staged += stage.nbytes
    return 0


cdef Stage idle_stage(Context context, size_t nbytes):
    """A stage that nothing uses, if one is soon found, else None.

    The one that was used last may be in the processor's caches; of the others, the oldest are the
    likeliest to be free.
    """
    cdef Stage stage
    cdef Py_ssize_t turn
    cdef int busy = 0
    for turn in range(len(context.stages)):
        stage = _stage_at(context, NEWEST if turn == 0 else OLDEST)
        if stage is None:  # other threads have taken them meanwhile
            break
        if stage.nbytes >= nbytes and stage.is_free():
            return stage
        busy += stage.nbytes >= nbytes
        _keep_stage(stage)
        if busy == MOST_BUSY:
            break
    return None


cdef Stage take_stage(Context context, size_t nbytes):
    """A stage that nothing uses, an old one if it is soon found."""
    cdef Stage stage = idle_stage(context, nbytes)
    return needed_stage(context, nbytes) if stage is None else stage


cdef Stage needed_stage(Context context, size_t nbytes):
    """A new stage, for which others give up what they do not need."""
    cdef Stage stage = _new_stage(context, nbytes)
    if not _allocate(stage):
        trim_caches()
        drain(may_block=True)
        if not _allocate(stage):
            context.check(CUDA_ERROR_OUT_OF_MEMORY)
    return stage


cdef Stage one_more_stage(Context context, size_t nbytes, bint within_limit):
    """A new stage, for a copy that can do without it: None if it would cost anybody anything."""
    cdef Stage stage
    if within_limit and context.stage_bytes + _stage_size(nbytes) > MOST_IDLE:
        return None
    stage = _new_stage(context, nbytes)
    return stage if _allocate(stage) else None


cdef size_t _stage_size(size_t nbytes) noexcept:
    """Of a stage for so many bytes."""
    cdef size_t size = SMALLEST
    while size < nbytes and size < STEP:
        size *= 2
    return size if size >= nbytes else (nbytes + STEP - 1) // STEP * STEP


cdef Stage _new_stage(Context context, size_t nbytes):
    """One that has no memory yet."""
    cdef Stage stage = Stage.__new__(Stage)
    stage.context = context
    stage.event = new_event(context, CU_EVENT_DISABLE_TIMING)
    stage.nbytes = _stage_size(nbytes)
    return stage


cdef bint _allocate(Stage stage) except -1:
    """Whether there was memory for it."""
    cdef CUresult status
    cdef bint pushed = False
    # Another thread's capture must not see our allocation.
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    drain(may_block=False)
    with nogil:
        status = enter_context(stage.context.raw, &pushed)
        if status == CUDA_SUCCESS:
            cuThreadExchangeStreamCaptureMode(&mode)
            status = cuMemHostAlloc(<void **>&stage.data, stage.nbytes, CU_MEMHOSTALLOC_PORTABLE)
            cuThreadExchangeStreamCaptureMode(&mode)
            leave_context(pushed)
    if status == CUDA_ERROR_OUT_OF_MEMORY:
        return False
    stage.context.check(status)
    stage.context.stage_bytes += stage.nbytes
    return True


cdef int give_stage(Stage stage) except -1:
    """Keep a stage for the next copy; let go of old ones that are free if there are many."""
    cdef Context context = stage.context
    cdef Stage oldest
    cdef int busy = 0
    _keep_stage(stage)
    while context.staged > MOST_IDLE and busy < MOST_BUSY:
        oldest = _stage_at(context, OLDEST)
        if oldest is None:
            break
        if not oldest.is_free():
            busy += 1
            _keep_stage(oldest)
    return 0


cdef int drop_idle_stages(Context context) except -1:
    """Let go of the stages that the GPU does not use."""
    cdef Stage stage
    for _ in range(len(context.stages)):
        stage = _stage_at(context, OLDEST)
        if stage is None:
            break
        if not stage.is_free():
            _keep_stage(stage)
    return 0


# ---- operations that copy between a buffer and a stage ----

cdef CUresult _copy_and_mark(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    """The driver calls: the copy, and the event that tells when the stage is free again."""
    cdef StagedCopy *copy = <StagedCopy *>arguments
    cdef CUresult status = copy.call(copy.arguments, stream, &copy.queued)
    if status == CUDA_SUCCESS:
        copy.queued = True
        status = cuEventRecord(copy.event, stream)
        copy.marked = status == CUDA_SUCCESS
    queued[0] = copy.queued
    return status


cdef int prepare_staged(
    Operation *operation, StagedCopy *copy, int name, Region region
) except -1:
    """An operation that borrows all of a buffer, as every chunk of a copy does.

    So the copy is refused before it has done anything. Where another thread gets in between two
    chunks, the next one is refused, or is in order behind it.
    """
    cdef bint inward = name != COPY_TO
    borrow(region, &copy.access, OWN_WRITE if inward else OWN_READ)
    copy.plain.target_is_host = region.host_side if inward else True
    copy.plain.source_is_host = True if inward else region.host_side
    copy.inward = inward
    copy.inside = pointer_of(region)
    prepare(operation, name, &copy.access, 1, copy_call, &copy.plain)
    copy.call, copy.arguments = operation.call, operation.arguments
    operation.call, operation.arguments = _copy_and_mark, copy
    return 0


cdef void aim(
    StagedCopy *copy, char *data, CUevent event, size_t offset, size_t nbytes
) noexcept nogil:
    """Say which bytes of the buffer the next operation copies, and by whose data and event."""
    cdef CUdeviceptr inside = copy.inside + offset
    cdef CUdeviceptr outside = <CUdeviceptr><size_t>data
    copy.plain.nbytes = nbytes
    copy.plain.target = inside if copy.inward else outside
    copy.plain.source = outside if copy.inward else inside
    copy.event = event
    copy.queued = copy.marked = False


cdef void note_use(StageUse *use, Operation *operation, StagedCopy *copy) noexcept nogil:
    """The operation was issued, or was refused, or failed with its first or second driver call."""
    if copy.queued:
        use[0] = StageUse(
            operation.request.issued.slot, operation.request.issued.seq, copy.marked)


cdef int refuse_early(int name, Region region, Stream stream) except -1:
    """Refuse a copy before there is anything staged for it."""
    cdef Operation operation
    cdef StagedCopy copy
    refuse_other_device(region, stream)
    prepare_staged(&operation, &copy, name, region)
    reason = ask(&operation, stream)
    if reason:
        refuse_operation(&operation, reason, stream, (region.describe(),))
    return 0
