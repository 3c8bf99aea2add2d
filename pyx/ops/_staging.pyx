"""Staging: copies between buffers and arrays, through page-locked stages.

Ordinary memory is host memory that is not page-locked, such as the memory of a NumPy array.

State that outlives a call: the stages of each context, and how copies are cut (the GIL guards
both); the copying threads (a lock of their own, in parallel_copy.h).
"""

import os

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy, memmove
from posix.unistd cimport getpid

from cudadrv._box_copy cimport BoxCopy, box_call, describe_staged
from cudadrv._copy cimport copy_call, refuse_other_dtype
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDADRV_TRACES, CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS,
    CU_EVENT_DISABLE_TIMING, CU_MEMHOSTALLOC_PORTABLE, CU_STREAM_CAPTURE_MODE_RELAXED, CUdeviceptr,
    CUevent, CUresult, CUstream, CUstreamCaptureMode, cuEventRecord,
    cuThreadExchangeStreamCaptureMode, cudadrv_table, in_cuMemHostAlloc, unlikely,
)
from cudadrv._engine cimport (
    OWN_MUST_WAIT, OWN_READ, OWN_WRITE, engine, own_join_host, own_known, own_snapshot_drop,
)
from cudadrv._event cimport (
    FOR_PROGRAM, UNTIL_DONE, ask_for, new_event, now_ns, pause_after, query_event, refuse_endless,
    wait_for_event,
)
from cudadrv._memory_kinds cimport LOCKED
from cudadrv._names cimport COPY_FROM_ASYNC, COPY_TO
from cudadrv._operation cimport REFUSED, Operation, attempt, issue, prepare
from cudadrv._peers cimport refuse_other_context
from cudadrv._pool cimport trim_caches
from cudadrv._region cimport (
    Region, borrow, check_queue, is_ndarray, payload_of, plain_array, pointer_of, queue,
    refuse_regions,
)
from cudadrv._release cimport drain, is_complete, release_later
from cudadrv._stream cimport Capturing, Stream
from cudadrv._token cimport Token, new_token, stand_for
from cudadrv._trace cimport trace_calls, trace_moves, trace_operation, trace_ticks

from cudadrv._errors import CaptureError

# ---- arrays and bytes of the caller ----

cdef object array_of(object source, Region target):
    """Return a C-contiguous array of the source's items. Raises if they do not fit the target."""
    array = as_array(source)
    _check(array, target)
    return np.ascontiguousarray(array)


cdef object target_array(object target, Region source):
    """Return the target as an array to copy to. Raises if it does not fit or cannot be written."""
    array = as_array(target)
    _check(array, source)
    if not array.flags.writeable:
        raise ValueError("copy_to needs an array that is writable, and this one is read-only")
    if not array.flags.c_contiguous and source.box is NULL:
        raise ValueError("copy_to needs a C-contiguous array; copy to a contiguous one and assign"
                         " that: strided[...] = contiguous")
    return array


cdef object as_array(object ordinary):
    if is_ndarray(ordinary):
        return plain_array(ordinary)
    try:
        return np.asarray(memoryview(ordinary))
    except TypeError:
        if hasattr(type(ordinary), "copy_to_async"):
            raise TypeError(f"{type(ordinary).__name__} has copies of its own: call its copy_to or"
                            " copy_from, with the buffer") from None
        raise TypeError(
            f"{type(ordinary).__name__} is neither a buffer of this library nor an object with the"
            " buffer protocol; make an array of it first: numpy.asarray(..., dtype)") from None


cdef int _check(object array, Region region) except -1:
    # The texts are made only for an error, because NumPy needs longer to make the text of a dtype
    # than a small copy takes.
    if array.dtype is not region.dtype and array.dtype != region.dtype:
        refuse_other_dtype(
            region, array.dtype, f"the array of shape {array.shape} ({array.dtype})")
    if array.size != region.count:
        raise ValueError(f"{region.describe()} has {region.count} items, and the array of shape"
                         f" {array.shape} has {array.size}; copy between parts of the same size:"
                         " buffer[a:b]")
    if region.box is not NULL and array.shape != region.shape:
        raise ValueError(f"{region.describe()} has shape {region.shape}, and the array"
                         f" {array.shape}; a box is copied from and to arrays of its shape")
    return 0


# ---- stages ----
#
# cudadrv passes no address of ordinary memory to the driver, except where the driver promises to
# read the memory during the call (`copy_batch`). After an interrupted copy,
# nothing may access the caller's memory any more, but when the driver would access it depends on
# the size of the copy and on the platform.

cdef enum:
    SMALLEST = 1 << 16          # bytes of the smallest stage; up to STEP, sizes are powers of two
    STEP = 1 << 20              # sizes above STEP are multiples of STEP
    MOST_IDLE = 64 << 20        # the most bytes of stages that a context keeps
    MOST_BUSY = 4               # a search gives up when it has found this many stages in use


@cython.final
@cython.no_gc_clear
cdef class Stage:
    """A page-locked block of memory, and the last copy that uses it.

    The stage is in its context's list `stages`, unless a call has taken it out and uses it.
    """

    def __dealloc__(self):
        if self.data is not NULL:
            self.context.stage_bytes -= self.nbytes
            release_later(LOCKED, <CUdeviceptr><size_t>self.data, NULL, self.context, None)

    cdef bint is_free(self) except -1:
        """Whether no copy uses the stage any more. May query the driver. Updates no clock."""
        if self.last.seq == 0 or own_known(engine, self.last.slot, self.last.seq):
            return True
        return self.last.marked and is_complete(self.event)


# ---- the stages of a context ----

cdef enum:
    OLDEST = 0
    NEWEST = -1


cdef Stage _stage_at(Context context, Py_ssize_t end):
    """Take a stage out of the list, so that no other thread uses it; None if the list is empty."""
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
    """Take a free stage out of the list. Returns None if a short search finds none.

    The newest stage is tried first, because its memory may be in the processor's caches. Then the
    oldest stages are tried, because they are the likeliest to be free.
    """
    cdef Stage stage
    cdef Py_ssize_t turn
    cdef int busy = 0
    for turn in range(len(context.stages)):
        stage = _stage_at(context, NEWEST if turn == 0 else OLDEST)
        if stage is None:  # other threads have taken the rest
            break
        if stage.nbytes >= nbytes and stage.is_free():
            return stage
        busy += stage.nbytes >= nbytes
        _keep_stage(stage)
        if busy == MOST_BUSY:
            break
    return None


cdef Stage take_stage(Context context, size_t nbytes):
    """Return a free stage: one from the list if a short search finds one, else a new one."""
    cdef Stage stage = idle_stage(context, nbytes)
    return needed_stage(context, nbytes) if stage is None else stage


cdef Stage needed_stage(Context context, size_t nbytes):
    """Make a stage. If memory runs out, trim the pools, free what waits in `_release`, and retry.
    """
    cdef Stage stage = _new_stage(context, nbytes)
    if not _allocate(stage):
        trim_caches()
        drain(may_block=True)
        if not _allocate(stage):
            context.check(CUDA_ERROR_OUT_OF_MEMORY)
    return stage


cdef Stage one_more_stage(Context context, size_t nbytes, bint within_limit):
    """Make a further stage for a copy that has stages already.

    Returns None if memory runs out, or if `within_limit` is true and the context's stages would
    exceed MOST_IDLE.
    """
    cdef Stage stage
    if within_limit and context.stage_bytes + _stage_size(nbytes) > MOST_IDLE:
        return None
    stage = _new_stage(context, nbytes)
    return stage if _allocate(stage) else None


cdef size_t _stage_size(size_t nbytes) noexcept:
    """Return the size of the smallest stage that holds this many bytes."""
    cdef size_t size = SMALLEST
    while size < nbytes and size < STEP:
        size *= 2
    return size if size >= nbytes else (nbytes + STEP - 1) // STEP * STEP


cdef Stage _new_stage(Context context, size_t nbytes):
    """Make a stage that has no memory yet."""
    cdef Stage stage = Stage.__new__(Stage)
    stage.context = context
    stage.event = new_event(context, CU_EVENT_DISABLE_TIMING)
    stage.nbytes = _stage_size(nbytes)
    return stage


cdef bint _allocate(Stage stage) except -1:
    """Allocate a stage's memory. Does not end captures of other libraries.

    Returns False if memory ran out.
    """
    cdef CUresult status
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    drain(may_block=False)
    with nogil:
        cuThreadExchangeStreamCaptureMode(&mode)
        status = in_cuMemHostAlloc(
            stage.context.raw, <void **>&stage.data, stage.nbytes, CU_MEMHOSTALLOC_PORTABLE)
        cuThreadExchangeStreamCaptureMode(&mode)
    if status == CUDA_ERROR_OUT_OF_MEMORY:
        return False
    stage.context.check(status)
    stage.context.stage_bytes += stage.nbytes
    return True


cdef int give_stage(Stage stage) except -1:
    """Put a stage back into the list. While the list is too large, drop its oldest free stages."""
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
    """Drop the stages of the list that are free."""
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
    """Make the driver calls of a staged copy: the copy, and then the record of the stage's event.

    The event tells when the stage is free.
    """
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
    """Prepare an operation that copies between a buffer and a stage.

    The operation borrows the whole buffer, even if it copies only a chunk. So a conflict with any
    part of the buffer refuses the first chunk already. If another thread queues work with the
    buffer between two chunks, the next chunk is ordered after that work, or is refused.
    """
    cdef bint inward = name != COPY_TO
    borrow(region, &copy.access, OWN_WRITE if inward else OWN_READ)
    copy.plain.target_is_host = region.host_side if inward else True
    copy.plain.source_is_host = True if inward else region.host_side
    copy.plain.marker = NULL    # not needed, because the host has written the stage
    copy.inward = inward
    copy.inside = pointer_of(region)
    prepare(operation, name, &copy.access, 1, copy_call, &copy.plain)
    copy.call, copy.arguments = operation.call, operation.arguments
    operation.call, operation.arguments = _copy_and_mark, copy
    return 0


cdef void aim(
    StagedCopy *copy, char *data, CUevent event, size_t offset, size_t nbytes
) noexcept nogil:
    """Set which bytes of the buffer the next operation copies, and which stage it uses."""
    cdef CUdeviceptr inside = copy.inside + offset
    cdef CUdeviceptr outside = <CUdeviceptr><size_t>data
    copy.plain.nbytes = nbytes
    copy.plain.target = inside if copy.inward else outside
    copy.plain.source = outside if copy.inward else inside
    copy.event = event
    copy.queued = copy.marked = False


cdef void note_use(StageUse *use, Operation *operation, StagedCopy *copy) noexcept nogil:
    """Note the operation as the last use of a stage, unless the driver did not accept its copy."""
    if copy.queued:
        use[0] = StageUse(
            operation.request.issued.slot, operation.request.issued.seq, copy.marked)


cdef int refuse_early(int name, Region region, Stream stream) except -1:
    """Raise if the copy would be refused. Called before the host copies any item to a stage."""
    cdef Operation operation
    cdef StagedCopy copy
    refuse_other_context(region, stream)
    stream.usable()
    if stream.capture is not NULL:
        raise CaptureError(
            f"an ordinary array cannot be copied in {(<Capturing>stream.capture).called()}: its"
            " items would be read once, by the capture, and never by a launch. Copy from or to a"
            " LockedBuffer, which each launch reads or writes anew"
            + ("; or, if each launch shall read what the array has now, from graph.constant(array)"
               if name == COPY_FROM_ASYNC else ""))
    prepare_staged(&operation, &copy, name, region)
    return check_queue(&operation, stream, region)


# ---- large copies, in chunks ----
#
# A large array is copied through a ring of stages, which several threads fill or empty.
#
# The calling thread releases the GIL. Then it queues the chunks, and asks the driver which chunks
# are complete. While there is nothing to queue, it fills or empties stages like the other threads.
# Those belong to a thread pool that makes no driver calls: include/cudadrv/parallel_copy.h.

cdef extern from "cudadrv/parallel_copy.h" nogil:
    enum:
        PAR_RING
        PAR_THREADS
    ctypedef struct par_copy:
        char *ordinary
        size_t nbytes
        size_t chunk
        size_t piece
        char **blocks
        uint32_t ring
        uint32_t threads
        uint8_t inward
        uint8_t cached
        int file
        uint64_t offset
        size_t missing
        int error
        int64_t copied_at
    void par_begin(par_copy *copy)
    void par_open(par_copy *copy, size_t upto)
    bint par_help(par_copy *copy)
    size_t par_copied(const par_copy *copy)
    void par_end(par_copy *copy)


cdef enum:
    SIGNALS_NS = 10_000_000     # how often to check for signals
    SLOW_NS = 100_000_000       # if there is no progress for this long, `refuse_endless` says why
    # `_advance` returns DONE, LOOK, a reason of `attempt`, or a status of the driver.
    DONE = 0                    # everything is copied
    LOOK = -1000                # it is time to check for signals

# Sizes of chunks and rings, in bytes. docs/performance.md has the measurements behind them.
cdef struct Plan:
    size_t threshold    # copies up to this size use one stage, and only the calling thread
    size_t chunk        # the largest size of a chunk
    size_t parts        # a copy has about this many chunks, as far as `least` and `chunk` allow
    size_t least        # the smallest size of a chunk; only the last one of a copy may be smaller
    size_t ring         # the most stages of one copy
    size_t fresh        # a copy may allocate one stage for each `fresh` bytes, and always one
    size_t piece        # how much a thread copies at a time
    size_t threads      # the most threads, including the calling one; 0 until it is determined
    size_t cached       # a `Filling` of at least this many bytes uses ordinary stores

cdef Plan _plan = Plan(
    threshold=1 << 18, chunk=4 << 20, parts=8, least=1 << 19, ring=8, fresh=32 << 20,
    piece=1 << 17, threads=0, cached=8 << 20)


cdef size_t _running = 0    # how many large copies are running


cdef struct Transfer:
    par_copy memory
    Operation operation
    StagedCopy copy
    CUevent events[PAR_RING]
    StageUse uses[PAR_RING]
    size_t issued       # the offset up to which chunks are queued
    size_t finished     # the offset up to which the driver has completed the queued chunks
    int64_t moved_at    # the time of the last progress, in ns
    bint holds          # whether operation.request.issued is a snapshot that must be dropped


cdef bint is_worth_chunks(size_t nbytes) noexcept nogil:
    """Whether a copy is large enough for several stages and threads."""
    return nbytes > _plan.threshold


cdef size_t chunk_size() noexcept:
    """Return the largest size of a chunk, in bytes."""
    return _plan.chunk


cdef size_t _threads() except 0:
    """Return how many threads copy: CUDADRV_COPY_THREADS, else one for each core, at most 12."""
    if _plan.threads == 0:
        from cudadrv._environment import copy_threads
        from cudadrv._processors import usable_processors
        _plan.threads = copy_threads(PAR_THREADS) or min(12, usable_processors())
    return _plan.threads


def plan(**changes):
    """Change members of the process's `Plan`, for measurements. Return the new plan as a dict."""
    global _plan
    cdef dict found
    _threads()
    found = _plan
    found.update(changes)
    _plan = found
    return found


cdef list _take_ring(Context context, size_t chunk, size_t nbytes):
    """Take the stages of a copy: free stages from the list, and new ones where they are worth it.

    Each copy may add one new stage, and a large one several (`Plan.fresh`), so that after some
    copies a whole ring exists. A second stage is made even if that exceeds MOST_IDLE, because a
    copy with a single stage has to wait whenever that stage is busy.
    """
    cdef size_t ring = min(_plan.ring, <size_t>PAR_RING)
    cdef size_t share = min(ring, max(<size_t>2, ring // _running))
    cdef size_t most = min(share, (nbytes + chunk - 1) // chunk)
    cdef size_t fresh = max(<size_t>1, nbytes // _plan.fresh)
    stages = []
    try:
        while <size_t>len(stages) < most:
            stage = idle_stage(context, chunk)
            if stage is None:
                if not stages:
                    stage = needed_stage(context, chunk)
                elif fresh or len(stages) < 2:
                    stage = one_more_stage(context, chunk, within_limit=len(stages) >= 2)
                fresh -= min(fresh, <size_t>1)
            if stage is None:
                break
            stages.append(stage)
    except BaseException:
        for stage in stages:
            give_stage(stage)
        raise
    return stages


cdef int copy_chunks(Region region, char *ordinary, Stream stream, int name) except -1:
    """Copy between a buffer and ordinary memory. Blocks until the copy is complete.

    If it raises, no thread accesses the ordinary memory any more, and the buffer stays borrowed
    until the queued chunks are known to be complete.
    """
    global _running
    _running += 1
    try:
        return _copy_chunks(region, ordinary, stream, name)
    finally:
        _running -= 1


cdef int _copy_chunks(Region region, char *ordinary, Stream stream, int name) except -1:
    cdef Transfer transfer
    cdef size_t nbytes = region.nbytes
    cdef size_t chunk = min(_plan.chunk, max(_plan.least, _whole_steps(nbytes // _plan.parts)))
    cdef size_t threads = min(_threads(), max(<size_t>1, nbytes // _plan.piece))
    stages = _take_ring(stream.context, chunk, nbytes)
    try:
        prepare_staged(&transfer.operation, &transfer.copy, name, region)
        transfer.operation.request.stream = stream.order
        transfer.memory.ordinary, transfer.memory.nbytes = ordinary, nbytes
        transfer.memory.chunk, transfer.memory.piece = chunk, _plan.piece
        transfer.memory.ring, transfer.memory.threads = len(stages), threads
        transfer.memory.inward, transfer.memory.file = name != COPY_TO, -1
        transfer.memory.cached = False
        for at, stage in enumerate(stages):
            transfer.memory.blocks[at] = (<Stage>stage).data
            transfer.events[at] = (<Stage>stage).event.raw
            transfer.uses[at] = (<Stage>stage).last
        transfer.issued = transfer.finished = 0
        transfer.moved_at = now_ns()
        transfer.holds = False
        par_begin(&transfer.memory)
        try:
            _run(&transfer, region, stream)
        finally:
            with nogil:
                par_end(&transfer.memory)
            if transfer.holds:
                own_snapshot_drop(engine, &transfer.operation.request.issued)
            for at, stage in enumerate(stages):
                (<Stage>stage).last = transfer.uses[at]
    finally:
        for stage in stages:
            give_stage(stage)
    return 0


cdef int copy_on_host(char *block, char *ordinary, size_t nbytes, bint inward) except -1:
    """Copy between page-locked or managed memory and other memory, neither of which a device uses.

    Several threads copy if there are many bytes, and the memories do not overlap.
    """
    cdef par_copy memory
    cdef bint apart = block + nbytes <= ordinary or ordinary + nbytes <= block
    if not apart or not is_worth_chunks(nbytes):
        with nogil:
            if inward:
                memmove(block, ordinary, nbytes)
            else:
                memmove(ordinary, block, nbytes)
        return 0
    _one_block(&memory, block, nbytes)
    memory.ordinary, memory.inward = ordinary, inward
    with nogil:
        par_begin(&memory)
        par_open(&memory, nbytes)
        while not _help(&memory):
            pass
        par_end(&memory)
    return 0


cdef int _one_block(par_copy *memory, char *block, size_t nbytes) except -1:
    """Set the members of a copy that has a single chunk. The caller may change its direction."""
    memory.nbytes = memory.chunk = nbytes
    memory.blocks[0], memory.ring = block, 1
    memory.piece = _plan.piece
    memory.threads = min(_threads(), max(<size_t>1, nbytes // _plan.piece))
    memory.ordinary, memory.inward, memory.file, memory.offset = NULL, True, -1, 0
    memory.cached = False
    return 0


cdef bint _help(par_copy *memory) noexcept nogil:
    """Copy pieces for some time, or until everything is copied. Return whether everything is."""
    cdef int64_t entered = now_ns()
    cdef int64_t now = entered
    cdef int64_t moved_at = entered
    while par_copied(memory) < memory.nbytes:
        if now - entered > SIGNALS_NS:
            return False
        if par_help(memory):
            moved_at = now
        else:
            pause_after(now - moved_at)
        now = now_ns()
    return True


@cython.final
cdef class Filling:
    """Filling(target, source, offset=0)\n--\n
    Fill page-locked memory by the copying threads, while the calling thread goes on.

    ``target`` is a HostBuffer, which is borrowed as by a view until `end` or `cancel` returns.
    ``source`` is an array of the same size, which must not change meanwhile, or the descriptor of a
    file, which is read from ``offset`` on.
    """
    cdef par_copy memory
    cdef Py_buffer room, given
    cdef int64_t begun_at
    cdef bint running
    cdef int process            # the process whose threads work: a forked child has none of them

    def __init__(self, target, source, uint64_t offset=0):
        if self.running:
            raise RuntimeError("this Filling is running")
        PyObject_GetBuffer(target, &self.room, PyBUF_WRITABLE)
        try:
            _one_block(&self.memory, <char *>self.room.buf, self.room.len)
            if isinstance(source, int):
                self.memory.file, self.memory.offset = source, offset
            else:
                PyObject_GetBuffer(source, &self.given, PyBUF_SIMPLE)
                if self.given.len != self.room.len:
                    raise ValueError("the source has another size")
                self.memory.ordinary = <char *>self.given.buf
                self.memory.cached = self.given.len >= <Py_ssize_t>_plan.cached
        except BaseException:
            self._release()
            raise
        self.begun_at = now_ns()
        self.running, self.process = True, getpid()
        with nogil:
            par_begin(&self.memory)
            par_open(&self.memory, self.memory.nbytes)
            if self.memory.threads == 1:  # no other thread would begin
                par_help(&self.memory)

    def end(self):
        """Wait until the target is filled. Return the number of bytes and the seconds it took.

        The number of bytes is smaller than the target if the file ends before. Signals such as
        Ctrl-C interrupt the wait. Raises OSError if reading failed.
        """
        cdef bint done = False
        if not self.running or self.process != getpid():
            raise RuntimeError("this Filling has ended")
        while not done:
            with nogil:
                done = _help(&self.memory)
            if not done:
                PyErr_CheckSignals()
        self.cancel()
        if self.memory.error:
            raise OSError(self.memory.error, os.strerror(self.memory.error))
        return self.memory.missing, (self.memory.copied_at - self.begun_at) / 1e9

    def cancel(self):
        """End the filling, even if it is not complete. Waits for pieces that are being copied."""
        self._stop()

    def __dealloc__(self):
        # Threads must not write memory that is gone. They take no new pieces from now on, so the
        # wait is short: at most one piece of `Plan.piece` bytes for each thread.
        self._stop()

    cdef void _stop(self) noexcept:
        if self.running:
            self.running = False
            if self.process == getpid():
                with nogil:
                    par_end(&self.memory)
            self._release()

    cdef void _release(self) noexcept:
        PyBuffer_Release(&self.room)
        PyBuffer_Release(&self.given)


@cython.final
cdef class Turn:
    """Turn(thing)\n--\n
    Lets one run at a time use a thing: ``with turn:``. ``thing`` is its name in messages.

    The end of the block cancels the `Filling` of the run. This runs no Python code, so Ctrl-C
    cannot skip it.
    """
    cdef str thing
    cdef bint taken
    cdef bint closed
    cdef Filling filling

    def __init__(self, str thing not None):
        self.thing = thing

    @property
    def filling(self):
        """The `Filling` that the run has begun, or None."""
        return self.filling

    @filling.setter
    def filling(self, Filling value):
        self.filling = value

    @property
    def closed(self):
        """Whether the thing was closed."""
        return self.closed

    def __enter__(self):
        # Handled before the turn is taken: Python 3.14 may raise KeyboardInterrupt after
        # `__enter__` has returned, without a call of `__exit__`.
        PyErr_CheckSignals()
        self.refuse_closed()
        if self.taken:
            raise RuntimeError(f"{self.thing} is running already")
        self.taken = True
        return self

    def __exit__(self, *exception):
        if self.filling is not None:
            self.filling._stop()
            self.filling = None
        self.taken = False

    def close(self):
        """Let no run begin any more. Raises RuntimeError during a run."""
        if self.taken:
            raise RuntimeError(f"{self.thing} is running; it can be closed afterwards")
        self.closed = True

    def refuse_closed(self):
        """Raise ValueError if the thing is closed."""
        if self.closed:
            raise ValueError(f"{self.thing} is closed")


cdef size_t _whole_steps(size_t nbytes) noexcept nogil:
    """Round a number of bytes up to a whole number of pieces (`Plan.piece`)."""
    return (nbytes + _plan.piece - 1) // _plan.piece * _plan.piece


cdef int _run(Transfer *transfer, Region region, Stream stream) except -1:
    cdef int reason = LOOK
    stream.usable()
    if unlikely(cudadrv_table.slowly & CUDADRV_TRACES):
        trace_calls.name_request(
            &transfer.operation.request, stream.order, <size_t>stream.raw)
    with nogil:
        _open(transfer)
    while reason != DONE:
        with nogil:
            reason = _advance(transfer, stream)
        if reason == LOOK:
            PyErr_CheckSignals()
            if now_ns() - transfer.moved_at > SLOW_NS:
                refuse_endless(&transfer.operation.request.issued)
        elif reason == REFUSED - OWN_MUST_WAIT:  # `issue` inserts the waits that the policy allows
            at = _aim(transfer)
            reason = issue(&transfer.operation, stream, NULL, False)
            _note(transfer, at, reason)
            if reason == 0:
                reason = LOOK
        if reason != LOOK and reason != DONE:
            refuse_regions(&transfer.operation, reason, stream, region, None)
    own_join_host(engine, &transfer.operation.request.issued)
    return 0


cdef void _open(Transfer *transfer) noexcept nogil:
    """Let the threads fill the stages that the driver has read.

    For a copy out of the buffer, let them empty the stages that the driver has written.
    """
    cdef size_t upto = transfer.finished
    if transfer.memory.inward:
        upto += transfer.memory.ring * transfer.memory.chunk
    par_open(&transfer.memory, min(upto, transfer.memory.nbytes))


cdef size_t _chunk_end(Transfer *transfer, size_t start) noexcept nogil:
    return min(start + transfer.memory.chunk, transfer.memory.nbytes)


cdef bint _may_issue(Transfer *transfer) noexcept nogil:
    """Whether the next chunk can be queued.

    Its stage must be full for a copy into the buffer, and empty for a copy out of the buffer.
    """
    cdef size_t copied
    if transfer.issued == transfer.memory.nbytes:
        return False
    copied = par_copied(&transfer.memory)
    if transfer.memory.inward:
        return copied > transfer.issued
    return transfer.issued < copied + transfer.memory.ring * transfer.memory.chunk


cdef uint32_t _aim(Transfer *transfer) noexcept nogil:
    """Prepare the operation for the next chunk. Returns the index of the chunk's stage."""
    cdef size_t start = transfer.issued
    cdef uint32_t at = <uint32_t>(start // transfer.memory.chunk % transfer.memory.ring)
    if transfer.holds:
        own_snapshot_drop(engine, &transfer.operation.request.issued)
        transfer.holds = False
    aim(&transfer.copy, transfer.memory.blocks[at], transfer.events[at], start,
        _chunk_end(transfer, start) - start)
    if unlikely(cudadrv_table.slowly & CUDADRV_TRACES):
        trace_moves(_chunk_end(transfer, start) - start)
    return at


cdef void _note(Transfer *transfer, uint32_t at, int reason) noexcept nogil:
    """Record the outcome of the chunk's operation. `reason` is 0 if the operation was issued."""
    note_use(&transfer.uses[at], &transfer.operation, &transfer.copy)
    if reason == 0:
        transfer.holds = True
        transfer.issued = _chunk_end(transfer, transfer.issued)


cdef int _issue(Transfer *transfer, Stream stream) except? -1 nogil:
    cdef bint traced = cudadrv_table.slowly & CUDADRV_TRACES
    cdef uint64_t begun = trace_ticks() if unlikely(traced) else 0
    at = _aim(transfer)
    reason = attempt(&transfer.operation, stream, NULL, False, True)
    if unlikely(traced):
        trace_operation(&transfer.operation.request, begun, reason)
    _note(transfer, at, reason)
    return reason


cdef int _ask(Transfer *transfer, Stream stream) noexcept nogil:
    """Query the oldest chunk that is not known to be complete. Return the status of the driver.

    The status is 0 if the chunk is complete.
    """
    cdef size_t start = transfer.finished
    ask_for(UNTIL_DONE)
    status = query_event(
        stream.context.raw,
        transfer.events[start // transfer.memory.chunk % transfer.memory.ring])
    ask_for(FOR_PROGRAM)
    if status == CUDA_SUCCESS:
        transfer.finished = _chunk_end(transfer, start)
        _open(transfer)
    return status


cdef bint _is_done(Transfer *transfer) noexcept nogil:
    return transfer.finished == transfer.memory.nbytes and (
        transfer.memory.inward or par_copied(&transfer.memory) == transfer.memory.nbytes)


cdef int _advance(Transfer *transfer, Stream stream) except? -1 nogil:
    """Queue chunks and copy pieces. Return the reason for stopping.

    This is DONE if everything is copied, LOOK if it is time to check for signals, and otherwise why
    an operation was refused, or the status of a driver call that failed.
    """
    cdef int64_t entered = now_ns()
    cdef int64_t now = entered
    cdef bint moved
    cdef int reason
    while now - entered < SIGNALS_NS:
        moved = False
        if _may_issue(transfer):
            reason = _issue(transfer, stream)
            if reason:
                return reason
            moved = True
        if transfer.finished < transfer.issued:
            reason = _ask(transfer, stream)
            if reason != CUDA_SUCCESS and reason != CUDA_ERROR_NOT_READY:
                return reason
            moved = moved or reason == CUDA_SUCCESS
        if _is_done(transfer):
            return DONE
        moved = moved or par_help(&transfer.memory)
        now = now_ns()
        if moved:
            transfer.moved_at = now
        else:
            pause_after(now - transfer.moved_at)
    return LOOK


# ---- copies of arrays ----

cdef extern from "cudadrv/streaming_copy.h" nogil:
    void streaming_copy(char *target, const char *source, size_t nbytes)


cdef void fill_stage(Stage stage, const char *ordinary, size_t nbytes) noexcept nogil:
    """Fill a stage. If there are many bytes, the stores bypass the processor's caches.

    Few bytes are stored normally, because most of them are still in a cache when the device reads
    them.
    """
    if is_worth_chunks(nbytes):
        streaming_copy(stage.data, ordinary, nbytes)
    else:
        memcpy(stage.data, ordinary, nbytes)


cdef int _queue(
    Operation *operation, int name, Region region, Stage stage, Stream stream
) except -1:
    """Queue the copy between a whole buffer and a stage. The caller must drop `request.issued`."""
    cdef StagedCopy copy
    cdef BoxCopy boxes
    prepare_staged(operation, &copy, name, region)
    aim(&copy, stage.data, stage.event.raw, 0, region.nbytes)
    if region.box is not NULL:
        describe_staged(&boxes, region, stage.data, copy.inward)
        copy.call, copy.arguments = box_call, &boxes
    try:
        queue(operation, stream, region)
    finally:
        note_use(&stage.last, operation, &copy)
    return 0


cdef int _copy_at_once(Region region, char *ordinary, Stream stream, int name) except -1:
    """Copy through one stage. Blocks until the copy is complete."""
    cdef Operation operation
    cdef size_t nbytes = payload_of(region)
    cdef Stage stage = take_stage(stream.context, nbytes)
    try:
        if name != COPY_TO:
            with nogil:
                fill_stage(stage, ordinary, nbytes)
        _queue(&operation, name, region, stage, stream)
        try:
            stream.context.check(wait_for_event(
                stream.context.raw, stage.event.raw, &operation.request.issued))
            own_join_host(engine, &operation.request.issued)
        finally:
            own_snapshot_drop(engine, &operation.request.issued)
        if name == COPY_TO:
            with nogil:
                memcpy(ordinary, stage.data, nbytes)
    finally:
        give_stage(stage)
    return 0


cdef Token _copy_snapshot(Region target, const char *source, Stream stream):
    """Copy the source to a stage, and queue the copy from the stage to the buffer."""
    cdef Operation operation
    cdef Token token = new_token(stream, None, target)
    cdef size_t nbytes = payload_of(target)
    cdef Stage stage = take_stage(stream.context, nbytes)
    try:
        with nogil:
            fill_stage(stage, source, nbytes)
        _queue(&operation, COPY_FROM_ASYNC, target, stage, stream)
        stand_for(token, &operation)
    finally:
        give_stage(stage)
    return token


cdef Token copy_array(int name, Region region, object array, Stream stream):
    """Copy between a buffer and a contiguous array of the same size, through stages; for a box,
    through one stage of its size.

    COPY_FROM and COPY_TO block until the copy is complete; COPY_FROM_ASYNC returns a token.
    """
    cdef Py_buffer view
    refuse_early(name, region, stream)
    flat = array.reshape(-1).view(np.uint8)
    PyObject_GetBuffer(flat, &view, PyBUF_WRITABLE if name == COPY_TO else PyBUF_SIMPLE)
    try:
        if <size_t>view.len != payload_of(region):
            raise ValueError(f"{region.describe()} has {payload_of(region)} bytes, and the array"
                             f" has {view.len}: it was changed meanwhile")
        if name == COPY_FROM_ASYNC:
            return _copy_snapshot(region, <const char *>view.buf, stream)
        if is_worth_chunks(region.nbytes) and region.box is NULL:
            copy_chunks(region, <char *>view.buf, stream, name)
        else:
            _copy_at_once(region, <char *>view.buf, stream, name)
    finally:
        PyBuffer_Release(&view)
    return None
