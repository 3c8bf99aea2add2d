"""Chunked copies: large arrays go through a ring of stages, filled or emptied by several threads.

The thread that called hands chunks to the driver and asks which are done, without the GIL, and
takes part in the copying when there is nothing to hand over. Other threads are a pool's, which
knows nothing of the driver: include/cudadrv/parallel_copy.h.
"""

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t, uint8_t

from cudadrv._context cimport Context
from cudadrv._driver cimport (
    CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUevent, bind_driver, cudadrv_table,
)
from cudadrv._operation cimport REFUSED, Operation, attempt, issue
from cudadrv._operation_names cimport COPY_TO
from cudadrv._ownership cimport OWN_MUST_WAIT, engine, own_join_host, own_snapshot_drop
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region
from cudadrv._stage cimport (
    Stage, StagedCopy, StageUse, aim, give_stage, idle_stage, needed_stage, note_use,
    one_more_stage, prepare_staged,
)
from cudadrv._stream cimport Stream
from cudadrv._wait cimport now_ns, pause_after, query_event

bind_driver(&cudadrv_table)  # for issue


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
    void par_begin(par_copy *copy)
    void par_open(par_copy *copy, size_t upto)
    bint par_help(par_copy *copy)
    size_t par_copied(const par_copy *copy)
    void par_end(par_copy *copy)


cdef enum:
    SIGNALS_NS = 10_000_000     # look for signals this often
    # What `_advance` answers, besides a reason of `attempt` or a status of the driver:
    DONE = 0                    # all is copied
    LOOK = -1000                # it is time to look for signals

# What is worth how much, in bytes: see docs/performance.md for the measurement.
cdef struct Plan:
    size_t threshold    # up to here one stage and the calling thread do
    size_t chunk        # the most in one stage,
    size_t parts        # but at least so many chunks,
    size_t least        # of at least this size
    size_t ring         # stages of one copy
    size_t fresh        # a copy may allocate one stage for so many bytes of its own
    size_t piece        # what a thread copies at a time
    size_t threads      # at most, the calling one among them; 0: not known yet

cdef Plan _plan = Plan(
    threshold=1 << 19, chunk=4 << 20, parts=8, least=1 << 19, ring=8, fresh=32 << 20,
    piece=1 << 17, threads=0)


cdef size_t _running = 0    # copies


cdef struct Transfer:
    par_copy memory
    Operation operation
    StagedCopy copy
    CUevent events[PAR_RING]
    StageUse uses[PAR_RING]
    size_t issued       # the driver has all chunks up to here,
    size_t finished     # and is done with them up to here
    int64_t moved_at    # when something happened last
    bint holds          # operation.request.issued is that of the last one


cdef bint is_worth_chunks(size_t nbytes) noexcept:
    """Whether a copy is large enough for several stages and threads."""
    return nbytes > _plan.threshold


cdef size_t _threads() except 0:
    """How many threads copy at a time: CUDADRV_COPY_THREADS, else up to 8, as there are cores."""
    if _plan.threads == 0:
        from cudadrv._processors import usable_processors
        wanted = os.environ.get("CUDADRV_COPY_THREADS")
        try:
            count = int(wanted) if wanted else min(8, usable_processors())
        except ValueError:
            count = 0
        if not 1 <= count <= <int>PAR_THREADS:
            raise ValueError(f"CUDADRV_COPY_THREADS is {wanted!r}; it must be a number of threads"
                             f" from 1 to {PAR_THREADS}")
        _plan.threads = count
    return _plan.threads


def plan(**changes):
    """Change what `Plan` says, for measurements; gives it as a dict."""
    global _plan
    cdef dict found
    _threads()
    found = _plan
    found.update(changes)
    _plan = found
    return found


cdef list _take_ring(Context context, size_t chunk, size_t nbytes):
    """Stages for chunks: as many as are there, and new ones as far as their cost is worth it.

    That is at least one, so that copies of one size come to a whole ring in time. Two are worth
    any limit, because a copy with one goes on with nothing while that one is busy.
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
    """Copy between a buffer and ordinary memory; complete on return.

    If it raises, no thread touches the ordinary memory any more, and what the driver was given
    stays borrowed until it is known to be complete.
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
        transfer.memory.inward = name != COPY_TO
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


cdef size_t _whole_steps(size_t nbytes) noexcept nogil:
    """Rounded up to a whole number of pieces."""
    return (nbytes + _plan.piece - 1) // _plan.piece * _plan.piece


cdef int _run(Transfer *transfer, Region region, Stream stream) except -1:
    cdef int reason = LOOK
    stream.usable()
    with nogil:
        _open(transfer)
    while reason != DONE:
        with nogil:
            reason = _advance(transfer, stream)
        if reason == LOOK:
            PyErr_CheckSignals()
        elif reason == REFUSED - OWN_MUST_WAIT:  # for what a policy may wait for
            at = _aim(transfer)
            reason = issue(&transfer.operation, stream)
            _note(transfer, at, reason)
            if reason == 0:
                reason = LOOK
        if reason != LOOK and reason != DONE:
            refuse_operation(&transfer.operation, reason, stream, (region.describe(),))
    own_join_host(engine, &transfer.operation.request.issued)
    return 0


cdef void _open(Transfer *transfer) noexcept nogil:
    """Let the stages be filled that the driver has read, or emptied that it has written."""
    cdef size_t upto = transfer.finished
    if transfer.memory.inward:
        upto += transfer.memory.ring * transfer.memory.chunk
    par_open(&transfer.memory, min(upto, transfer.memory.nbytes))


cdef size_t _chunk_end(Transfer *transfer, size_t start) noexcept nogil:
    return min(start + transfer.memory.chunk, transfer.memory.nbytes)


cdef bint _may_issue(Transfer *transfer) noexcept nogil:
    """Whether the next chunk's stage is full, or outward empty."""
    cdef size_t copied
    if transfer.issued == transfer.memory.nbytes:
        return False
    copied = par_copied(&transfer.memory)
    if transfer.memory.inward:
        return copied > transfer.issued
    return transfer.issued < copied + transfer.memory.ring * transfer.memory.chunk


cdef uint32_t _aim(Transfer *transfer) noexcept nogil:
    """Let the operation be the copy of the next chunk. Gives the index of its stage."""
    cdef size_t start = transfer.issued
    cdef uint32_t at = <uint32_t>(start // transfer.memory.chunk % transfer.memory.ring)
    if transfer.holds:
        own_snapshot_drop(engine, &transfer.operation.request.issued)
        transfer.holds = False
    aim(&transfer.copy, transfer.memory.blocks[at], transfer.events[at], start,
        _chunk_end(transfer, start) - start)
    return at


cdef void _note(Transfer *transfer, uint32_t at, int reason) noexcept nogil:
    """The operation was issued, or refused."""
    note_use(&transfer.uses[at], &transfer.operation, &transfer.copy)
    if reason == 0:
        transfer.holds = True
        transfer.issued = _chunk_end(transfer, transfer.issued)


cdef int _issue(Transfer *transfer, Stream stream) except? -1 nogil:
    at = _aim(transfer)
    reason = attempt(&transfer.operation, stream)
    _note(transfer, at, reason)
    return reason


cdef int _ask(Transfer *transfer, Stream stream) noexcept nogil:
    """Ask whether the driver is done with the oldest chunk: 0 if it is, else its status."""
    cdef size_t start = transfer.finished
    status = query_event(
        stream.context.raw,
        transfer.events[start // transfer.memory.chunk % transfer.memory.ring])
    if status == CUDA_SUCCESS:
        transfer.finished = _chunk_end(transfer, start)
        _open(transfer)
    return status


cdef bint _is_done(Transfer *transfer) noexcept nogil:
    return transfer.finished == transfer.memory.nbytes and (
        transfer.memory.inward or par_copied(&transfer.memory) == transfer.memory.nbytes)


cdef int _advance(Transfer *transfer, Stream stream) except? -1 nogil:
    """Go on until all is copied, something is refused, or it is time to look for signals."""
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
