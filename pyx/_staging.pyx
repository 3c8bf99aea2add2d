"""Staging: ordinary memory reaches the GPU through page-locked memory of the library's own.

The driver never sees the address of ordinary memory: what it would do with it, and when, differs by
size and platform, and a copy that is interrupted must not touch it any more.
"""

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from cudadrv._cache cimport trim_caches
from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._copy cimport Copy, copy_operation, refuse_other_device
from cudadrv._driver cimport (
    CU_EVENT_DISABLE_TIMING, CU_MEMHOSTALLOC_PORTABLE, CU_STREAM_CAPTURE_MODE_RELAXED,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUresult, CUstreamCaptureMode,
    bind_driver, cudadrv_table, cuMemHostAlloc, cuThreadExchangeStreamCaptureMode,
)
from cudadrv._event cimport Event, new_event
from cudadrv._operation cimport Operation, ask, issue
from cudadrv._operation_names cimport COPY_FROM, COPY_FROM_ASYNC, COPY_TO
from cudadrv._ownership cimport (
    OWN_READ, OWN_WRITE, engine, own_access, own_known, own_snapshot_drop,
)
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region, borrow, pointer_of
from cudadrv._release cimport LOCKED, drain, release_later
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token, new_token
from cudadrv._users cimport is_complete

bind_driver(&cudadrv_table)

cdef enum:
    CHUNK = 1 << 20             # of blocking copies: two are in flight at a time
    SMALLEST = 1 << 16
    MOST_IDLE = 64 << 20        # bytes of stages that a context keeps
    MOST_BUSY = 4               # stages in use, after which a call looks at no more


@cython.final
@cython.no_gc_clear
cdef class Stage:
    """A page-locked block, and the last copy that uses it.

    It is in the list of its context, or a call has taken it out and uses it: never both.
    """

    cdef Context context        # the block dies with it
    cdef char *data
    cdef size_t nbytes
    cdef uint32_t slot          # of the last copy, and
    cdef uint64_t seq           # 0, or which one of that slot
    cdef Event busy             # recorded after it; None if that failed

    def __dealloc__(self):
        if self.data is not NULL:
            release_later(LOCKED, <CUdeviceptr><size_t>self.data, NULL, self.context, None)

    cdef bint is_free(self) except -1:
        """Asks the driver; nobody learns anything from the answer."""
        if self.seq == 0 or own_known(engine, self.slot, self.seq):
            return True
        return self.busy is not None and is_complete(self.busy)

    cdef int wait(self) except -1:
        """Wait until the GPU no longer uses it, and the host knows what it did with it."""
        self.busy.synchronize()
        return 0

    cdef int used_by(self, Operation *operation, Stream stream) except -1:
        """The operation was queued on the stream, and uses it."""
        self.slot, self.seq = operation.request.issued.slot, operation.request.issued.seq
        self.busy = None
        self.busy = stream.record_event(
            new_event(stream.context, CU_EVENT_DISABLE_TIMING), &operation.request.issued)
        return 0


cdef Stage _oldest_stage(Context context):
    """Take the oldest out of the list, so that threads cannot share one; None if there is none."""
    cdef Stage stage
    if not context.stages:
        return None
    stage = context.stages.pop(0)
    context.staged -= stage.nbytes
    return stage


cdef int _keep_stage(Stage stage) except -1:
    stage.context.stages.append(stage)
    stage.context.staged += stage.nbytes
    return 0


cdef Stage _take_stage(Context context, size_t nbytes):
    """A stage that nothing uses, an old one if it is soon found."""
    cdef Stage stage
    cdef size_t size = SMALLEST
    cdef int busy = 0
    for _ in range(len(context.stages)):
        stage = _oldest_stage(context)
        if stage is None:  # other threads have taken them meanwhile
            break
        if stage.nbytes >= nbytes and stage.is_free():
            return stage
        busy += stage.nbytes >= nbytes
        _keep_stage(stage)
        if busy == MOST_BUSY:
            break
    while size < nbytes and size < CHUNK:
        size *= 2
    if size < nbytes:
        size = (nbytes + CHUNK - 1) // CHUNK * CHUNK
    return _new_stage(context, size)


cdef Stage _new_stage(Context context, size_t nbytes):
    cdef Stage stage = Stage.__new__(Stage)
    cdef CUresult status = CUDA_ERROR_OUT_OF_MEMORY
    cdef bint pushed = False
    # Another thread's capture must not see our allocation.
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    stage.context = context
    stage.nbytes = nbytes
    for may_block in (False, True):
        if may_block:
            trim_caches()
        drain(may_block)
        with nogil:
            status = enter_context(context.raw, &pushed)
            if status == CUDA_SUCCESS:
                cuThreadExchangeStreamCaptureMode(&mode)
                status = cuMemHostAlloc(<void **>&stage.data, nbytes, CU_MEMHOSTALLOC_PORTABLE)
                cuThreadExchangeStreamCaptureMode(&mode)
                leave_context(pushed)
        if status != CUDA_ERROR_OUT_OF_MEMORY:
            break
    context.check(status)
    return stage


cdef int _give_stage(Stage stage) except -1:
    """Keep a stage for the next copy; let go of old ones that are free if there are many."""
    cdef Context context = stage.context
    cdef Stage oldest
    cdef int busy = 0
    _keep_stage(stage)
    while context.staged > MOST_IDLE and busy < MOST_BUSY:
        oldest = _oldest_stage(context)
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
        stage = _oldest_stage(context)
        if stage is None:
            break
        if not stage.is_free():
            _keep_stage(stage)
    return 0


cdef int _prepare(
    Operation *operation, int name, Region region, own_access *access, Copy *copy
) except -1:
    """An operation that borrows all of a buffer, as every chunk of a copy does.

    So the copy is refused before it has done anything, and nobody gets in between two chunks.
    """
    cdef bint inward = name != COPY_TO
    borrow(region, access, OWN_WRITE if inward else OWN_READ)
    copy.target_is_host = region.host_side if inward else True
    copy.source_is_host = True if inward else region.host_side
    copy_operation(operation, name, copy, access, 1)
    return 0


cdef int _refuse_early(int name, Region region, Stream stream) except -1:
    """Refuse a copy before there is anything staged for it."""
    cdef Operation operation
    cdef own_access access
    cdef Copy copy
    refuse_other_device(region, stream)
    _prepare(&operation, name, region, &access, &copy)
    reason = ask(&operation, stream)
    if reason:
        refuse_operation(&operation, reason, stream, (region.describe(),))
    return 0


cdef int _queue(
    Operation *operation, int name, Region region, size_t offset, size_t nbytes, Stage stage,
    Stream stream
) except -1:
    """Queue the copy of one chunk between a buffer and a stage."""
    cdef own_access access
    cdef Copy copy
    cdef CUdeviceptr inside = pointer_of(region) + offset
    cdef CUdeviceptr outside = <CUdeviceptr><size_t>stage.data
    _prepare(operation, name, region, &access, &copy)
    copy.nbytes = nbytes
    copy.target, copy.source = (outside, inside) if name == COPY_TO else (inside, outside)
    reason = issue(operation, stream)
    if reason:
        refuse_operation(operation, reason, stream, (region.describe(),))
    return 0


cdef int _copy_chunks(
    Region region, char *ordinary, size_t nbytes, Stream stream, int name
) except -1:
    """One chunk is copied by the host while the other is copied by the GPU; complete on return."""
    cdef Operation operation
    cdef Stage stage
    cdef size_t offset = 0
    cdef size_t behind = 0      # up to here the GPU is done, and outward the host has the data
    cdef size_t size
    cdef size_t turn = 0
    cdef bint inward = name == COPY_FROM
    stages = []
    try:
        for _ in range(1 if nbytes <= CHUNK else 2):
            stages.append(_take_stage(stream.context, min(nbytes, <size_t>CHUNK)))
        while offset < nbytes:
            stage = stages[turn % len(stages)]
            size = min(nbytes - offset, <size_t>CHUNK)
            if turn >= <size_t>len(stages):
                behind += _finish_chunk(stage, ordinary + behind, nbytes - behind, inward)
            if inward:
                with nogil:
                    memcpy(stage.data, ordinary + offset, size)
            _queue(&operation, name, region, offset, size, stage, stream)
            try:
                stage.used_by(&operation, stream)
            finally:
                own_snapshot_drop(engine, &operation.request.issued)
            offset += size
            turn += 1
        while behind < nbytes:
            stage = stages[behind // CHUNK % len(stages)]
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


cdef Token _copy_snapshot(Region target, const char *source, size_t nbytes, Stream stream):
    """Queue a copy of a snapshot that is taken now."""
    cdef Operation operation
    cdef Token token = None
    cdef Stage stage = _take_stage(stream.context, nbytes)
    try:
        with nogil:
            memcpy(stage.data, source, nbytes)
        _queue(&operation, COPY_FROM_ASYNC, target, 0, nbytes, stage, stream)
        try:
            stage.used_by(&operation, stream)
            token = new_token(&operation, stream, None, target)
        except BaseException:
            own_snapshot_drop(engine, &operation.request.issued)
            raise
    finally:
        _give_stage(stage)
    return token


cdef Token copy_array(int name, Region region, object array, Stream stream):
    """Copy between a buffer and a contiguous array of as many bytes, through page-locked memory.

    COPY_FROM and COPY_TO are complete on return; COPY_FROM_ASYNC gives a token.
    """
    cdef Py_buffer view
    cdef Token token = None
    _refuse_early(name, region, stream)
    flat = array.reshape(-1).view(np.uint8)
    PyObject_GetBuffer(flat, &view, PyBUF_WRITABLE if name == COPY_TO else PyBUF_SIMPLE)
    try:
        if name == COPY_FROM_ASYNC:
            token = _copy_snapshot(region, <const char *>view.buf, region.nbytes, stream)
        else:
            _copy_chunks(region, <char *>view.buf, region.nbytes, stream, name)
    finally:
        PyBuffer_Release(&view)
    return token
