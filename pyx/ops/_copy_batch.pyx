"""Many copies as one operation: `copy_batch`.

The copies of plain ranges are one driver call, cuMemcpyBatchAsync; copies of boxes and copies
between contexts follow one by one. The driver takes no batch in a capture and on the legacy default
stream: in a capture each copy is a node, and elsewhere the copies are queued one by one.

For each item, the fast path (`_gather`, `_may_overlap`, and that of the engine) makes no object.

State that outlives a call: the number of the last batch (the GIL guards it).
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport SIZE_MAX, uint32_t, uint64_t
from libc.string cimport memset

from cudadrv._box_copy cimport BoxCopy, box_call, describe_copy
from cudadrv._copy cimport (
    MOST_READ_EARLY, are_apart, check_pair, copy_async, is_usual, nothing_to_do,
    stream_of_copy,
)
from cudadrv._driver cimport (
    CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CUcontext, CUdeviceptr, CUevent, CUmemLocation,
    CUresult, CUstream, cuEventRecord, cuMemcpyAsync, cuMemcpyBatchAsync, cuStreamWaitEvent,
    enter_context, leave_context, likely, unlikely,
)
from cudadrv._engine cimport (
    OWN_LEGACY, OWN_NON_BLOCKING, OWN_READ, OWN_WRITE, own_access, own_memory,
)
from cudadrv._event cimport marker_of
from cudadrv._names cimport COPY_BATCH, COPY_OF_BATCH
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._peers cimport refuse_unreachable
from cudadrv._region cimport (
    Region, borrow, check_region, is_region, of_present_size, overlap, payload_of, pointer_of,
    refuse_box, refuse_regions,
)
from cudadrv._staging cimport array_of
from cudadrv._stream cimport Stream, known_stream, refuse_no_stream
from cudadrv._token cimport Token, new_token, stand_for


# Values of CUmemcpySrcAccessOrder, and CUmemcpyAttributes. The headers before CUDA 12.8 lack both.
cdef enum:
    IN_STREAM_ORDER = 1
    DURING_CALL = 2


cdef struct Attributes:
    int order
    CUmemLocation source    # hints for managed memory; 0: none
    CUmemLocation target
    unsigned int flags


cdef struct Batch:
    Py_ssize_t count            # copies of plain ranges
    CUdeviceptr *targets
    CUdeviceptr *sources
    size_t *sizes
    Py_ssize_t box_count        # other copies
    Py_ssize_t box_room
    BoxCopy *boxes
    Py_ssize_t access_count
    own_access *accesses        # of each copy: its target, and its source unless that is an array
    own_access **sorted         # room for a pointer to each access, twice
    Attributes attributes
    CUcontext context           # that of the stream
    bint at_once                # whether the driver takes a batch on this stream
    CUevent marker              # as Copy.marker, for all copies; or NULL


def copy_batch(pairs, stream=None, *, source_access="stream"):
    """Queue many copies between buffers as one operation. Does not wait for them.

    All copies are checked together: one of them is refused, or none. Nothing orders the copies of a
    batch among each other, so a batch in which two items overlap, and one of them is written, is
    refused, too. If the driver refuses a copy after it has queued others, these run, and all
    buffers of the batch stay borrowed until they are known to be complete.

    On a stream that is captured, each copy becomes a node of the graph. They are then checked one
    by one: if one of them is refused, those before it are nodes of the graph.

    Parameters
    ----------
    pairs : iterable of tuple
        Each has a target and a source: buffers, parts or boxes, as for `Buffer.copy_from_async`;
        also of two devices. A batch of empty buffers queues nothing.
    stream : Stream, optional
        Default: the current stream of a ``with stream:`` block; without one, a TypeError.
    source_access : {"stream", "during call"}
        With ``"during call"``, the sources are arrays of ordinary memory, as for
        `Buffer.copy_from`. The driver reads them before `copy_batch` returns, so they can be
        changed then. The targets must not be boxes. Needs a driver of CUDA 12.8 (else a CudaError),
        and a stream that is not captured and is not the legacy default stream.

    Returns
    -------
    Token
        The token stands for all copies.

    Raises
    ------
    TypeError, ValueError
        There are no pairs, or an item is not a pair of buffers; the dtypes, shapes or sizes of a
        pair differ; items overlap; there is no stream, or it cannot use a buffer. The message has
        the number of the item. ``source_access`` has another value, or cannot be had here.
    BufferBorrowedError, BufferExportedError, BufferClosedError
        See docs/errors.md. Nothing is queued then.
    CaptureError
        A copy that reads its source during the call, on a stream that is captured.
    CudaError
        A driver call failed.

    Driver functions: cuMemcpyBatchAsync, for copies of boxes and between contexts those of
    `Buffer.copy_from_async`; with a driver before CUDA 12.8 or on the legacy default stream,
    cuMemcpyAsync for each copy.

    >>> cu.copy_batch([(work[:64], first), (work[64:], second)], stream)
    """
    cdef list given = (<list>pairs)[:] if type(pairs) is list else []
    cdef bint during_call = _is_during_call(source_access)
    cdef Stream found
    cdef Token token
    cdef Batch batch
    cdef int each
    if type(pairs) is not list:
        for pair in pairs:
            given.append(pair)
    if PyList_GET_SIZE(given) == 0:
        raise ValueError("copy_batch needs at least one pair of buffers")
    found = <Stream>stream if isinstance(stream, Stream) else _stream_of(given, stream, during_call)
    _make_room(&batch, PyList_GET_SIZE(given))
    try:
        if unlikely(during_call):
            _gather_arrays(&batch, given, found)
        else:
            _gather(&batch, given, found)
        each = 1 if during_call else 2
        if _shares_memory(&batch, each) and unlikely(_may_overlap(&batch, each)):
            _refuse_overlap(given)
        if unlikely(batch.access_count == 0):
            token = nothing_to_do(COPY_BATCH, found, None, None)
        elif unlikely(found.capture is not NULL):
            token = _capture(given, found)
        else:
            token = _queue(&batch, given, found)
    finally:
        PyMem_RawFree(batch.targets)
        PyMem_RawFree(batch.boxes)
    return token


cdef bint _is_during_call(object source_access) except -1:
    if source_access == "stream" or source_access == "during call":
        return source_access != "stream"
    raise ValueError(f"source_access is 'stream' or 'during call', not {source_access!r}")


cdef int _make_room(Batch *batch, Py_ssize_t count) except -1:
    cdef char *memory
    cdef size_t each = 2 * sizeof(CUdeviceptr) + sizeof(size_t) + 2 * sizeof(own_access) \
        + 4 * sizeof(own_access *)
    memset(batch, 0, sizeof(Batch))
    memory = <char *>PyMem_RawMalloc(count * each)
    if memory is NULL:
        raise MemoryError()
    batch.targets = <CUdeviceptr *>memory
    batch.sources = batch.targets + count
    batch.sizes = <size_t *>(batch.sources + count)
    batch.accesses = <own_access *>(batch.sizes + count)
    batch.sorted = <own_access **>(batch.accesses + 2 * count)
    batch.attributes.order = IN_STREAM_ORDER
    return 0


# ---- the items ----

cdef inline bint _is_pair(object given) noexcept:
    return type(given) is tuple and PyTuple_GET_SIZE(given) == 2 \
        and is_region(<object>PyTuple_GET_ITEM(given, 0)) \
        and is_region(<object>PyTuple_GET_ITEM(given, 1))


cdef int _gather(Batch *batch, list given, Stream stream) except -1:
    """Check the items, and describe their copies. Items that need it are replaced in `given`."""
    cdef Py_ssize_t i
    cdef Region target, source
    cdef bint blocks = stream.order.order != OWN_NON_BLOCKING
    for i in range(PyList_GET_SIZE(given)):
        item = <object>PyList_GET_ITEM(given, i)
        if likely(_is_pair(item)):
            target = <Region>PyTuple_GET_ITEM(item, 0)
            source = <Region>PyTuple_GET_ITEM(item, 1)
            if likely(target.box is NULL and source.box is NULL) \
                    and likely(is_usual(target, source, stream.context)):
                _put_plain(batch, target, source)
                if unlikely(blocks):
                    _note_early(batch, source, stream)
                continue
        target, source = given[i] = _checked(item, i, stream)
        if target.nbytes and pointer_of(target) != pointer_of(source):
            if target.box is not NULL or source.box is not NULL or are_apart(target, source):
                _put_box(batch, target, source)
            else:
                _put_plain(batch, target, source)
            if blocks:
                _note_early(batch, source, stream)
    return 0


cdef tuple _checked(object item, Py_ssize_t index, Stream stream):
    """Return an item as a pair of buffers that can be copied. Raises if they cannot."""
    cdef Region target, source
    target, source = _pair_of(item, index)
    try:
        check_region(target)
        check_region(source)
        check_pair(target, source)
        if not are_apart(target, source) or (target.memory.context is not stream.context
                                             and source.memory.context is not stream.context):
            refuse_unreachable(target, stream)
            refuse_unreachable(source, stream)
    except Exception as error:
        error.add_note(f"This is item {index} of the batch.")
        raise
    return target, source


cdef tuple _pair_of(object item, Py_ssize_t index):
    if not isinstance(item, (tuple, list)) or len(item) != 2 \
            or not is_region(item[0]) or not is_region(item[1]):
        raise TypeError(f"item {index} of the batch is {item!r}, and not a pair of buffers"
                        " (target, source)")
    return of_present_size(item[0]), of_present_size(item[1])


cdef Stream _stream_of(list given, object stream, bint during_call):
    """Return the stream of a batch if the argument is not a Stream: the current one, for None."""
    cdef Region target, source
    stream = known_stream(stream)
    if stream is None:
        target, source = _target_of(given[0], 0), None
        if not during_call:
            target, source = _pair_of(given[0], 0)
            check_region(source)
        check_region(target)
        stream = stream_of_copy(target, target if source is None else source, None)
    if stream is None:
        refuse_no_stream("copy_batch")
    return stream


cdef inline int _put_plain(Batch *batch, Region target, Region source) except -1:
    cdef own_access *accesses = batch.accesses + batch.access_count
    borrow(target, accesses, OWN_WRITE)
    borrow(source, accesses + 1, OWN_READ)
    batch.access_count += 2
    batch.targets[batch.count] = pointer_of(target)
    batch.sources[batch.count] = pointer_of(source)
    batch.sizes[batch.count] = target.nbytes
    batch.count += 1
    return 0


cdef int _put_box(Batch *batch, Region target, Region source) except -1:
    cdef BoxCopy *grown
    cdef Py_ssize_t room = 2 * batch.box_room + 4
    if batch.box_count == batch.box_room:
        grown = <BoxCopy *>PyMem_RawRealloc(batch.boxes, room * sizeof(BoxCopy))
        if grown is NULL:
            raise MemoryError()
        batch.boxes, batch.box_room = grown, room
    describe_copy(&batch.boxes[batch.box_count], target, source)
    batch.boxes[batch.box_count].across = are_apart(target, source)
    borrow(target, &batch.accesses[batch.access_count], OWN_WRITE)
    borrow(source, &batch.accesses[batch.access_count + 1], OWN_READ)
    batch.access_count += 2
    batch.box_count += 1
    return 0


cdef int _note_early(Batch *batch, Region source, Stream stream) except -1:
    """Note a copy whose source a driver may read too early: see _copy."""
    if source.host_side and payload_of(source) <= MOST_READ_EARLY and batch.marker is NULL:
        batch.marker = marker_of(stream.context).raw
    return 0


# ---- sources that are read during the call ----

cdef Region _target_of(object item, Py_ssize_t index):
    if not isinstance(item, (tuple, list)) or len(item) != 2 or not is_region(item[0]):
        raise TypeError(f"item {index} of the batch is {item!r}, and not a pair of a buffer and an"
                        " array (target, source)")
    return of_present_size(item[0])


cdef int _gather_arrays(Batch *batch, list given, Stream stream) except -1:
    """As `_gather`, for arrays. `given` keeps them alive."""
    cdef Py_ssize_t i
    cdef Region target
    stream.usable()
    if stream.capture is not NULL:
        stream.refuse_captured()
    if stream.order.order == OWN_LEGACY:
        raise ValueError("on the legacy default stream the driver takes no batches, so it cannot"
                         " read sources during the call; use another stream, or copy_from")
    batch.attributes.order = DURING_CALL
    for i in range(PyList_GET_SIZE(given)):
        target = _target_of(given[i], i)
        try:
            given[i] = target, _array_for(target, given[i][1], stream)
        except Exception as error:
            error.add_note(f"This is item {i} of the batch.")
            raise
    for target, array in given:
        if target.nbytes:
            borrow(target, &batch.accesses[batch.access_count], OWN_WRITE)
            batch.targets[batch.count] = pointer_of(target)
            batch.sources[batch.count] = <size_t>array.ctypes.data
            batch.sizes[batch.count] = target.nbytes
            batch.access_count += 1
            batch.count += 1
    return 0


cdef object _array_for(Region target, object source, Stream stream):
    """Return a contiguous array of the items of a source that is read during the call."""
    if is_region(source):
        raise TypeError(f"source_access='during call' is for arrays of ordinary memory, and"
                        f" {(<Region>source).describe()} is a buffer, which is read in stream"
                        " order: leave out source_access")
    check_region(target)
    refuse_box(target, "a copy that reads its source during the call")
    refuse_unreachable(target, stream)
    return array_of(source, target)


# ---- the operation ----

cdef Token _queue(Batch *batch, list given, Stream stream):
    cdef Operation operation
    cdef Token token
    cdef int reason
    batch.context = stream.context.raw
    batch.at_once = stream.order.order != OWN_LEGACY \
        and (batch.count > 1 or batch.attributes.order == DURING_CALL)
    token = new_token(stream, tuple(given), _buffers_of)
    prepare(&operation, COPY_BATCH, batch.accesses, <int>batch.access_count, _batch_call, batch)
    reason = issue(&operation, stream, NULL, False)
    if unlikely(reason):
        refuse_regions(&operation, reason, stream, _used(batch, given), None)
    stand_for(token, &operation)
    return token


def _buffers_of(items, written):
    """Return the buffers that a batch writes, or those that it reads, for its token."""
    found = []
    for item in items:
        if is_region(item[not written]):
            found.append(item[not written])
    return tuple(found)


cdef list _used(Batch *batch, list given):
    """Return the regions of all accesses of a batch, in their order."""
    cdef Region target
    found = []
    for target, source in given:
        if not is_region(source):
            found += [target] if target.nbytes else []
        elif target.nbytes and pointer_of(target) != pointer_of(source):
            found += [target, source]
    return found


cdef CUresult _batch_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    """Make the driver calls of a batch in the context of its stream.

    The current context decides which memory a copy may use. `issue` would repeat a call in the
    stream's context only if nothing was queued in another one.
    """
    cdef Batch *batch = <Batch *>arguments
    cdef bint pushed = False
    cdef CUresult status = enter_context(batch.context, &pushed)
    if status == CUDA_SUCCESS:
        status = _call_all(batch, stream, queued)
        leave_context(pushed)
    return status


cdef CUresult _call_all(Batch *batch, CUstream stream, bint *queued) noexcept nogil:
    cdef CUresult status = CUDA_SUCCESS
    cdef bint part = False
    cdef Py_ssize_t i
    if unlikely(batch.marker is not NULL):
        status = cuEventRecord(batch.marker, stream)
        if status == CUDA_SUCCESS:
            status = cuStreamWaitEvent(stream, batch.marker, 0)
        if status != CUDA_SUCCESS:
            return status
    if batch.count:
        status = _call_plain(batch, stream, queued)
    for i in range(batch.box_count):
        if status != CUDA_SUCCESS:
            break
        queued[0] |= i > 0
        status = box_call(&batch.boxes[i], stream, &part)
    return status


cdef CUresult _call_plain(Batch *batch, CUstream stream, bint *queued) noexcept nogil:
    cdef CUresult status = CUDA_SUCCESS
    cdef size_t first = 0
    cdef size_t failed = SIZE_MAX
    cdef Py_ssize_t i
    if likely(batch.at_once):
        status = cuMemcpyBatchAsync(
            batch.targets, batch.sources, batch.sizes, batch.count, &batch.attributes, &first, 1,
            &failed, stream)
        # If a copy failed, the driver may have queued others: it chooses their order.
        queued[0] = status == CUDA_SUCCESS or failed != SIZE_MAX
        if likely(queued[0]) or status != CUDA_ERROR_NOT_SUPPORTED \
                or batch.attributes.order == DURING_CALL:
            return status
    for i in range(batch.count):
        status = cuMemcpyAsync(batch.targets[i], batch.sources[i], batch.sizes[i], stream)
        if status != CUDA_SUCCESS:
            break
        queued[0] = True
    return status


cdef Token _capture(list given, Stream stream):
    """Capture the copies as nodes. Return the token of the last one, which is ordered after all."""
    cdef Region target, source
    cdef Token token = None
    cdef Py_ssize_t index
    for index, (target, source) in enumerate(given):
        try:
            token = copy_async(COPY_OF_BATCH, target, source, stream, "copy_batch")
        except Exception as error:
            error.add_note(f"This is item {index} of the batch."
                           + " Those before it are nodes of the graph." * (index > 0))
            raise
    token.source, token.target = tuple(given), _buffers_of
    return token


# ---- items that overlap ----

cdef uint32_t _last_batch = 0


cdef bint _shares_memory(Batch *batch, int each) noexcept:
    """Whether an item may write memory that another one uses.

    Each memory that is written gets the number of the batch. The numbers wrap around, so the answer
    may be True without need.
    """
    cdef Py_ssize_t i
    cdef own_memory *memory
    global _last_batch
    _last_batch += 1
    for i in range(0, batch.access_count, each):
        memory = batch.accesses[i].memory
        if memory.batch == _last_batch:
            return True
        memory.batch = _last_batch
    for i in range(1, batch.access_count, each):
        if batch.accesses[i].memory.batch == _last_batch:
            return each > 1
    return False


cdef bint _may_overlap(Batch *batch, int each) noexcept:
    """Whether an item may write bytes that another one uses: bytes between the first and the last
    one of two boxes, or of a box and a range.

    `each` is the number of accesses of an item: 2, or 1 if the source is an array. The accesses are
    visited in the order of their first bytes. Most batches have them in this order already.
    """
    cdef Py_ssize_t count = batch.access_count // each
    cdef own_access **writes = batch.sorted
    cdef own_access **reads = writes + count
    cdef own_access **other = writes + batch.access_count
    cdef own_access **end_of_writes = reads
    cdef own_access **end_of_reads = other
    cdef own_access *access
    cdef own_memory *memory = NULL
    cdef uint64_t written = 0   # where the furthest access that writes ends
    cdef uint64_t used = 0      # and the furthest of all
    cdef Py_ssize_t i
    for i in range(count):
        writes[i] = &batch.accesses[i * each]
        if each == 2:
            reads[i] = writes[i] + 1
    _sort(writes, count, other)
    _sort(reads, end_of_reads - reads, other)
    while writes < end_of_writes:
        if reads < end_of_reads and _is_before(reads[0], writes[0]):
            access = reads[0]
            reads += 1
        else:
            access = writes[0]
            writes += 1
        if access.memory is not memory:
            memory, written, used = access.memory, 0, 0
        if access.start < (used if access.mode == OWN_WRITE else written):
            return True
        used = max(used, access.stop)
        if access.mode == OWN_WRITE:
            written = max(written, access.stop)
    # The remaining reads of the last memory: all are after its last write.
    return reads < end_of_reads and reads[0].memory is memory and reads[0].start < written


cdef inline bint _is_before(const own_access *one, const own_access *other) noexcept:
    return one.start < other.start if one.memory is other.memory \
        else <size_t>one.memory < <size_t>other.memory


cdef void _sort(own_access **accesses, Py_ssize_t count, own_access **other) noexcept:
    """Sort accesses by their memory and first byte. `other` has room for as many."""
    cdef Py_ssize_t width, at, i
    cdef own_access **source = accesses
    cdef own_access **target = other
    for i in range(1, count):
        if _is_before(accesses[i], accesses[i - 1]):
            break
    else:
        return
    width = 1
    while width < count:
        for at in range(0, count, 2 * width):
            _merge(source, target, at, min(at + width, count), min(at + 2 * width, count))
        source, target = target, source
        width *= 2
    if source is not accesses:
        for i in range(count):
            accesses[i] = source[i]


cdef inline void _merge(
    own_access **source, own_access **target, Py_ssize_t at, Py_ssize_t middle, Py_ssize_t end
) noexcept:
    """Merge two sorted pieces, which begin at `at` and `middle`."""
    cdef Py_ssize_t left = at
    cdef Py_ssize_t right = middle
    for at in range(at, end):
        if right == end or (left < middle and not _is_before(source[right], source[left])):
            target[at] = source[left]
            left += 1
        else:
            target[at] = source[right]
            right += 1


cdef int _refuse_overlap(list given) except -1:
    """Raise ValueError if an item writes bytes that another one uses.

    The buffers of each memory are visited in the order of their first bytes, and compared with
    those that have begun before. Of the sources without gaps, only the one that ends last matters,
    so the time does not grow with the number of items that read the same bytes.
    """
    cdef Region region
    cdef Py_ssize_t index, furthest
    cdef bint writes
    cdef list uses = []
    cdef list targets = []
    cdef list sources = []
    cdef list open_targets = []
    cdef list boxes = []
    for index, (target, source) in enumerate(given):
        region = target
        targets.append(region)
        sources.append(source)
        if not is_region(source):
            if region.nbytes:
                uses.append((<size_t>region.memory.state, region.start, index, True))
        elif region.nbytes and pointer_of(region) != pointer_of(source):
            uses.append((<size_t>region.memory.state, region.start, index, True))
            region = source
            uses.append((<size_t>region.memory.state, region.start, index, False))
    uses.sort()
    last, furthest = None, -1
    for memory, start, index, writes in uses:
        if memory != last:
            open_targets, boxes, last, furthest = [], [], memory, -1
        open_targets = _open_at(targets, open_targets, start)
        region = targets[index] if writes else sources[index]
        _compare(region, index, writes, targets, open_targets, True)
        if writes:
            boxes = _open_at(sources, boxes, start)
            _compare(region, index, True, sources, boxes, False)
            if furthest >= 0:
                _compare(region, index, True, sources, [furthest], False)
            open_targets.append(index)
        elif region.box is not NULL:
            boxes.append(index)
        elif furthest < 0 or _end(region) > _end(sources[furthest]):
            furthest = index
    return 0


cdef size_t _end(Region region) noexcept:
    return region.start + region.nbytes


cdef list _open_at(list regions, list indices, size_t start):
    """Return the regions, among these indices, that end after a byte."""
    found = []
    for index in indices:
        if _end(regions[index]) > start:
            found.append(index)
    return found


cdef int _compare(
    Region region, Py_ssize_t index, bint writes, list others, list indices, bint others_write
) except -1:
    cdef Py_ssize_t other
    for other in indices:
        if other != index and overlap(region, others[other]):
            raise ValueError(
                f"items {min(index, other)} and {max(index, other)} of the batch overlap:"
                f" {region.describe()} is {'written' if writes else 'read'} by item {index}, and"
                f" {(<Region>others[other]).describe()} is {'written' if others_write else 'read'}"
                f" by item {other}. Nothing orders the copies of a batch: queue one of them by a"
                " call of its own")
    return 0
