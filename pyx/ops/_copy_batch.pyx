"""Many copies as one operation: `copy_batch`."""

from libc.stdlib cimport calloc, free

from cudadrv._box_copy cimport BoxCopy, box_call, describe_copy
from cudadrv._copy cimport (
    MOST_READ_EARLY, Copy, are_apart, check_pair, copy_call, nothing_to_do, required_stream,
)
from cudadrv._driver cimport CUDA_SUCCESS, CUresult, CUstream
from cudadrv._engine cimport OWN_NON_BLOCKING, OWN_READ, OWN_WRITE, own_access
from cudadrv._event cimport marker_of
from cudadrv._names cimport COPY_BATCH
from cudadrv._operation cimport Operation, prepare
from cudadrv._peers cimport refuse_unreachable
from cudadrv._region cimport (
    Region, borrow, check_region, is_region, of_present_size, overlap, payload_of, pointer_of,
    queue,
)
from cudadrv._stream cimport Stream, known_stream
from cudadrv._token cimport Token, new_token, stand_for


cdef struct Item:
    bint boxed      # `box` describes the copy, else `plain`
    Copy plain
    BoxCopy box


cdef struct Batch:
    Py_ssize_t count
    Item *items


def copy_batch(pairs, stream=None):
    """Queue many copies between buffers as one operation. Does not wait for them.

    All copies are checked together: one of them is refused, or none. Nothing orders the copies of a
    batch among each other, so a batch in which two items overlap, and one of them is written, is
    refused, too. If a driver call fails after the first one, the copies that are queued run, and
    all buffers stay borrowed until they are known to be complete.

    Parameters
    ----------
    pairs : iterable of (target, source)
        Buffers, parts or boxes, as for `Buffer.copy_from_async`; also of two devices. A batch
        without items, or of empty buffers, queues nothing.
    stream : Stream, optional
        Default: the current stream of a ``with stream:`` block; without one, a TypeError.

    Returns
    -------
    Token
        The token stands for all copies.

    Raises
    ------
    TypeError, ValueError
        An item is not a pair of buffers; the dtypes, shapes or sizes of a pair differ; items
        overlap; there is no stream, or it cannot use a buffer. The message has the number of the
        item.
    BufferBorrowedError, BufferExportedError, BufferClosedError
        See docs/errors.md. Nothing is queued then.
    CaptureError
        The stream is captured.
    CudaError
        A driver call failed.

    Driver functions: those of `Buffer.copy_from_async`, once for each item.

    >>> cu.copy_batch([(work[:64], first), (work[64:], second)], stream)
    """
    cdef list targets = []
    cdef list sources = []
    cdef list numbers = []
    cdef list checked = []
    cdef Stream found
    cdef Region target = None
    cdef Region source = None
    stream = known_stream(stream)
    for index, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 \
                or not is_region(pair[0]) or not is_region(pair[1]):
            raise TypeError(f"item {index} of the batch is {pair!r}, and not a pair of buffers"
                            " (target, source)")
        target, source = of_present_size(pair[0]), of_present_size(pair[1])
        try:
            check_region(target)
            check_region(source)
            check_pair(target, source)
        except Exception as error:
            error.add_note(f"This is item {index} of the batch.")
            raise
        checked.append((target, source))
        if target.nbytes and pointer_of(target) != pointer_of(source):
            targets.append(target)
            sources.append(source)
            numbers.append(index)
    if target is None:
        raise ValueError("copy_batch needs at least one pair of buffers")
    found = required_stream(stream, target, "copy_batch")
    found.usable()
    for target, source in checked:  # empty buffers, too, as for a single copy
        if not are_apart(target, source) or (target.memory.context is not found.context
                                             and source.memory.context is not found.context):
            refuse_unreachable(target, found)
            refuse_unreachable(source, found)
    if not targets:
        return nothing_to_do(COPY_BATCH, found, source, target)
    _refuse_overlap(targets, sources, numbers)
    return _queue(targets, sources, found)


cdef Token _queue(list targets, list sources, Stream stream):
    cdef Operation operation
    cdef own_access *accesses
    cdef Batch batch
    cdef Region target, source
    cdef Token token
    cdef Py_ssize_t i
    cdef list used = []
    batch.count = len(targets)
    batch.items = <Item *>calloc(batch.count, sizeof(Item) + 2 * sizeof(own_access))
    if batch.items is NULL:
        raise MemoryError()
    accesses = <own_access *>(batch.items + batch.count)
    try:
        for i in range(batch.count):
            target, source = targets[i], sources[i]
            used.append(target)
            used.append(source)
            borrow(target, &accesses[2 * i], OWN_WRITE)
            borrow(source, &accesses[2 * i + 1], OWN_READ)
            _describe(&batch.items[i], target, source, stream)
        token = new_token(stream, tuple(sources), tuple(targets))
        prepare(&operation, COPY_BATCH, accesses, <int>(2 * batch.count), _batch_call, &batch)
        queue(&operation, stream, used)
        stand_for(token, &operation)
    finally:
        free(batch.items)
    return token


cdef int _describe(Item *item, Region target, Region source, Stream stream) except -1:
    cdef Copy *plain = &item.plain
    cdef bint early = stream.order.order != OWN_NON_BLOCKING and source.host_side \
        and payload_of(source) <= MOST_READ_EARLY
    item.boxed = target.box is not NULL or source.box is not NULL or are_apart(target, source)
    if item.boxed:
        describe_copy(&item.box, target, source)
        item.box.across = are_apart(target, source)
    plain.target, plain.source, plain.nbytes = \
        pointer_of(target), pointer_of(source), target.nbytes
    plain.target_is_host, plain.source_is_host = target.host_side, source.host_side
    plain.marker = NULL
    if early:
        plain.marker = item.box.marker = marker_of(stream.context).raw
    return 0


cdef CUresult _batch_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Batch *batch = <Batch *>arguments
    cdef Item *item
    cdef CUresult status
    cdef bint part = False
    cdef Py_ssize_t i
    for i in range(batch.count):
        item = &batch.items[i]
        status = box_call(&item.box, stream, &part) if item.boxed \
            else copy_call(&item.plain, stream, &part)
        if status != CUDA_SUCCESS:
            return status
        queued[0] = True
    return CUDA_SUCCESS


# ---- items that overlap ----

cdef int _refuse_overlap(list targets, list sources, list numbers) except -1:
    """Raise ValueError if an item writes bytes that another one uses.

    The buffers of each memory are visited in the order of their first bytes, and compared with
    those that have begun before. Of the sources without gaps, only the one that ends last matters,
    so the time does not grow with the number of items that read the same bytes.
    """
    cdef Region region
    cdef Py_ssize_t index, furthest
    cdef bint writes
    cdef list uses = []
    cdef list open_targets = []
    cdef list boxes = []
    for index, region in enumerate(targets):
        uses.append((<size_t>region.memory.state, region.start, index, True))
    for index, region in enumerate(sources):
        uses.append((<size_t>region.memory.state, region.start, index, False))
    uses.sort()
    last, furthest = None, -1
    for memory, start, index, writes in uses:
        if memory != last:
            open_targets, boxes, last, furthest = [], [], memory, -1
        open_targets = _open_at(targets, open_targets, start)
        region = targets[index] if writes else sources[index]
        _compare(region, index, writes, targets, open_targets, True, numbers)
        if writes:
            boxes = _open_at(sources, boxes, start)
            _compare(region, index, True, sources, boxes, False, numbers)
            if furthest >= 0:
                _compare(region, index, True, sources, [furthest], False, numbers)
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
    Region region, Py_ssize_t index, bint writes, list others, list indices, bint others_write,
    list numbers
) except -1:
    cdef Py_ssize_t other
    for other in indices:
        if other != index and overlap(region, others[other]):
            one, two = numbers[index], numbers[other]
            raise ValueError(
                f"items {min(one, two)} and {max(one, two)} of the batch overlap:"
                f" {region.describe()} is {'written' if writes else 'read'} by item {one}, and"
                f" {(<Region>others[other]).describe()} is {'written' if others_write else 'read'}"
                f" by item {two}. Nothing orders the copies of a batch: queue one of them by a call"
                " of its own")
    return 0
