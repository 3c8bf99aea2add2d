"""Staging: ordinary memory reaches the GPU through page-locked memory of the library's own.

The driver never sees the address of ordinary memory: what it would do with it, and when, differs by
size and platform, and a copy that is interrupted must not touch it any more.
"""

cimport cython
from libc.string cimport memcpy

from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._copy cimport Copy, copy_operation, refuse_other_device
from cudadrv._driver cimport (
    CU_EVENT_DISABLE_TIMING, CU_MEMHOSTALLOC_PORTABLE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS,
    CUdeviceptr, CUresult, bind_driver, cudadrv_table, cuEventQuery, cuMemHostAlloc,
)
from cudadrv._event cimport Event, new_event
from cudadrv._operation cimport Operation, issue
from cudadrv._operation_names cimport COPY_FROM, COPY_FROM_ASYNC, COPY_TO
from cudadrv._ownership cimport (
    OWN_READ, OWN_WRITE, engine, own_access, own_snapshot_drop,
)
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region
from cudadrv._release cimport LOCKED, drain, release_later
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token, new_token

bind_driver(&cudadrv_table)

cdef enum:
    CHUNK = 1 << 20             # of blocking copies: two are in flight at a time
    SMALLEST = 1 << 16
    MOST_IDLE = 64 << 20        # bytes of idle stages that a context keeps


@cython.final
@cython.no_gc_clear
cdef class Stage:
    """A page-locked block, and the event after which the GPU no longer uses it."""

    cdef Context context        # the block dies with it
    cdef char *data
    cdef size_t nbytes
    cdef Event busy             # None, or recorded after the last copy

    def __dealloc__(self):
        if self.data is not NULL:
            release_later(LOCKED, <CUdeviceptr><size_t>self.data, NULL, self.context)

    cdef bint is_free(self) except -1:
        """Asks the driver; nobody learns anything from the answer."""
        cdef CUresult status
        if self.busy is None:
            return True
        with nogil:
            status = cuEventQuery(self.busy.raw)
        return status == CUDA_SUCCESS

    cdef int wait(self) except -1:
        """Wait until the GPU no longer uses it, and the host knows what it did with it."""
        if self.busy is not None:
            self.busy.synchronize()
            self.busy = None
        return 0

    cdef int used_by(self, Operation *operation, Stream stream) except -1:
        """The operation was queued on the stream, and uses it."""
        self.busy = stream.record_event(
            new_event(stream.context, CU_EVENT_DISABLE_TIMING), &operation.request.issued)
        return 0


cdef Stage _take_stage(Context context, size_t nbytes):
    cdef Stage stage
    stages = context.stages
    for index, each in enumerate(stages):
        stage = each
        if stage.nbytes >= nbytes and stage.is_free():
            stage.busy = None
            del stages[index]
            return stage
    size = SMALLEST
    while size < nbytes:
        size *= 2
    return _new_stage(context, size)


cdef Stage _new_stage(Context context, size_t nbytes):
    cdef Stage stage = Stage.__new__(Stage)
    cdef CUresult status = CUDA_ERROR_OUT_OF_MEMORY
    cdef bint pushed = False
    stage.context = context
    stage.nbytes = nbytes
    for may_block in (False, True):
        drain(may_block)
        with nogil:
            status = enter_context(context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuMemHostAlloc(<void **>&stage.data, nbytes, CU_MEMHOSTALLOC_PORTABLE)
                leave_context(pushed)
        if status != CUDA_ERROR_OUT_OF_MEMORY:
            break
    context.check(status)
    return stage


cdef int _give_stage(Stage stage) except -1:
    stages = stage.context.stages
    stages.append(stage)
    kept = 0
    for index in range(len(stages) - 1, -1, -1):
        kept += (<Stage>stages[index]).nbytes
        if kept > MOST_IDLE and (<Stage>stages[index]).is_free():
            del stages[index]
    return 0


cdef int drop_idle_stages(Context context) except -1:
    """Let go of the stages that the GPU does not use."""
    context.stages = [stage for stage in context.stages if not (<Stage>stage).is_free()]
    return 0


cdef int _queue(
    Operation *operation, int name, Region region, size_t offset, size_t nbytes, bint whole,
    Stage stage, Stream stream
) except -1:
    """Queue the copy of one chunk between a buffer and a stage.

    With `whole` it borrows all of the buffer, as the first chunk does: a copy is refused before it has
    done anything.
    """
    cdef own_access access
    cdef Copy copy
    cdef CUdeviceptr inside = region.pointer() + offset
    cdef CUdeviceptr outside = <CUdeviceptr><size_t>stage.data
    cdef bint inward = name != COPY_TO
    region.borrow(&access, OWN_WRITE if inward else OWN_READ)
    if not whole:
        access.start += offset
        access.stop = access.start + nbytes
    copy.nbytes = nbytes
    copy.target, copy.source = (inside, outside) if inward else (outside, inside)
    copy.target_is_host = region.host_side if inward else True
    copy.source_is_host = True if inward else region.host_side
    copy_operation(operation, name, &copy, &access, 1)
    reason = issue(operation, stream)
    if reason:
        refuse_operation(operation, reason, stream, (region.describe(),))
    return 0


cdef int copy_in(Region target, const char *source, size_t nbytes, Stream stream) except -1:
    """Copy ordinary memory to a buffer; complete on return."""
    return _copy_chunks(target, <char *>source, nbytes, stream, COPY_FROM)


cdef int copy_out(Region source, char *target, size_t nbytes, Stream stream) except -1:
    """Copy a buffer to ordinary memory; complete on return."""
    return _copy_chunks(source, target, nbytes, stream, COPY_TO)


cdef int _copy_chunks(
    Region region, char *ordinary, size_t nbytes, Stream stream, int name
) except -1:
    """One chunk is copied by the host while the other is copied by the GPU."""
    cdef Operation operation
    cdef Stage stage
    cdef size_t offset = 0
    cdef size_t behind = 0      # outward: up to here the host has the data
    cdef size_t size
    cdef int turn = 0
    cdef bint inward = name == COPY_FROM
    refuse_other_device(region, stream)
    stages = [_take_stage(stream.context, min(nbytes, <size_t>CHUNK))
              for _ in range(1 if nbytes <= CHUNK else 2)]
    try:
        while offset < nbytes:
            stage = stages[turn % len(stages)]
            size = min(nbytes - offset, <size_t>CHUNK)
            if turn >= len(stages):
                behind += _finish_chunk(stage, ordinary + behind, nbytes - behind, inward)
            if inward:
                with nogil:
                    memcpy(stage.data, ordinary + offset, size)
            _queue(&operation, name, region, offset, size, offset == 0, stage, stream)
            try:
                stage.used_by(&operation, stream)
            finally:
                own_snapshot_drop(engine, &operation.request.issued)
            offset += size
            turn += 1
        for turn in range(turn - len(stages), turn):
            stage = stages[turn % len(stages)]
            behind += _finish_chunk(stage, ordinary + behind, nbytes - behind, inward)
    finally:
        for stage in stages:
            _give_stage(stage)
    return 0


cdef size_t _finish_chunk(Stage stage, char *ordinary, size_t left, bint inward) except? 0:
    """Wait for a chunk; outward, hand its bytes over. Gives their number."""
    cdef size_t size = min(left, <size_t>CHUNK)
    stage.wait()
    if not inward:
        with nogil:
            memcpy(ordinary, stage.data, size)
    return size


cdef Token copy_in_async(Region target, const char *source, size_t nbytes, Stream stream):
    """Queue a copy of a snapshot that is taken now."""
    cdef Operation operation
    cdef Token token
    refuse_other_device(target, stream)
    cdef Stage stage = _take_stage(stream.context, nbytes)
    try:
        with nogil:
            memcpy(stage.data, source, nbytes)
        _queue(&operation, COPY_FROM_ASYNC, target, 0, nbytes, True, stage, stream)
        token = new_token(&operation, stream, (), (target,))
        stage.used_by(&operation, stream)
    finally:
        _give_stage(stage)
    return token
