"""Copies between buffers. The copies of graphs are in _copy_node."""

from cudadrv._box_copy cimport BoxCopy, box_call, describe_copy
from cudadrv._capture cimport Capture, Holdings
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_SUCCESS, CUcontext, CUdeviceptr, CUresult, CUstream, cuEventRecord, cuMemcpyAsync,
    cuMemcpyDtoDAsync, cuMemcpyDtoHAsync, cuMemcpyHtoDAsync, cuMemcpyPeerAsync, cuStreamWaitEvent,
    cudadrv_table, in_cuMemGetInfo, last_failure, likely, unlikely,
)
from cudadrv._engine cimport OWN_NON_BLOCKING, OWN_READ, OWN_WRITE, own_access
from cudadrv._errors cimport is_sticky
from cudadrv._event cimport marker_of
from cudadrv._names cimport NO_NODE, node_kind
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._peers cimport need_access, refuse_unreachable
from cudadrv._region cimport (
    Region, borrow, check_region, of_present_size, overlap, payload_of, pointer_of, queue,
    refuse_regions,
)
from cudadrv._release cimport internal_stream
from cudadrv._stream cimport (
    Stream, innermost_stream, known_stream, refuse_no_stream, stream_for,
)
from cudadrv._token cimport Token, new_token, stand_for

from cudadrv._errors import CaptureError

# ---- copies between buffers ----

# If a stream has no work of its own, NVIDIA's driver (580) reads the source of a small copy from
# page-locked memory to a device during the call. It overlooks that a default stream's rule orders
# the stream after work that may still write the source. If the stream first waits for an event of
# its own, the driver reads in order. Copies of 16 KiB were read too early, copies of 32 KiB were
# not (MOST_READ_EARLY).


cdef CUresult copy_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Copy *copy = <Copy *>arguments
    cdef CUresult status
    if copy.source_is_host:
        if unlikely(copy.target_is_host):
            return cuMemcpyAsync(copy.target, copy.source, copy.nbytes, stream)
        if unlikely(copy.marker is not NULL):
            status = cuEventRecord(copy.marker, stream)
            if status == CUDA_SUCCESS:
                status = cuStreamWaitEvent(stream, copy.marker, 0)
            if status != CUDA_SUCCESS:
                return status
        return cuMemcpyHtoDAsync(copy.target, <void *><size_t>copy.source, copy.nbytes, stream)
    if copy.target_is_host:
        return cuMemcpyDtoHAsync(<void *><size_t>copy.target, copy.source, copy.nbytes, stream)
    return cuMemcpyDtoDAsync(copy.target, copy.source, copy.nbytes, stream)


cdef Token copy_async(int name, Region target, Region source, object stream, str method):
    """Queue a copy of a whole buffer to another one."""
    cdef Stream found
    cdef bint boxed = target.box is not NULL or source.box is not NULL
    if likely(isinstance(stream, Stream)) \
            and likely(is_usual(target, source, (<Stream>stream).context)) \
            and likely(not boxed or _same_shapes(target, source)):
        found = <Stream>stream
    else:
        found = _checked(target, source, stream, method)
        if target.nbytes == 0 or pointer_of(target) == pointer_of(source):
            return nothing_to_do(name, found, source, target)
        if are_apart(target, source):
            return _copy_across(name, target, source, found)
    if unlikely(boxed):
        return _copy_boxes(name, target, source, found)
    return _copy_plain(name, target, source, found)


cdef inline Token _copy_plain(int name, Region target, Region source, Stream found):
    """The part of `copy_async` for bytes without gaps, within one context or in a capture."""
    cdef Operation operation
    cdef own_access accesses[2]
    cdef Copy copy
    cdef Token token
    if unlikely(found.capture is not NULL):
        target, source = of_present_size(target), of_present_size(source)
        check_pair(target, source)
    borrow(target, &accesses[0], OWN_WRITE)
    borrow(source, &accesses[1], OWN_READ)
    copy.target = pointer_of(target)
    copy.source = pointer_of(source)
    copy.nbytes = target.nbytes
    copy.target_is_host = target.host_side
    copy.source_is_host = source.host_side
    copy.marker = NULL
    if unlikely(found.order.order != OWN_NON_BLOCKING) and copy.source_is_host \
            and copy.nbytes <= MOST_READ_EARLY and found.capture is NULL:
        copy.marker = marker_of(found.context).raw
    token = new_token(found, source, target)
    prepare(&operation, name, accesses, 2, copy_call, &copy)
    queue(&operation, found, target, source)
    stand_for(token, &operation)
    return token


cdef Token _copy_boxes(int name, Region target, Region source, Stream stream):
    """The part of `copy_async` for boxes, within one context or in a capture."""
    cdef Operation operation
    cdef own_access accesses[2]
    cdef BoxCopy copy
    cdef Token token
    if stream.capture is not NULL:
        target, source = of_present_size(target), of_present_size(source)
        check_pair(target, source)
    borrow(target, &accesses[0], OWN_WRITE)
    borrow(source, &accesses[1], OWN_READ)
    describe_copy(&copy, target, source)
    if stream.order.order != OWN_NON_BLOCKING and source.host_side and stream.capture is NULL \
            and payload_of(source) <= MOST_READ_EARLY:
        copy.marker = marker_of(stream.context).raw
    token = new_token(stream, source, target)
    prepare(&operation, name, accesses, 2, box_call, &copy)
    queue(&operation, stream, target, source)
    stand_for(token, &operation)
    return token


cdef inline bint _same_shapes(Region one, Region other) except -1:
    """Whether two regions of as many items have the same shape."""
    cdef Py_ssize_t i
    if one.sizes is other.sizes or (_is_flat(one) and _is_flat(other)):
        return True
    if one.sizes is None or other.sizes is None or len(one.sizes) != len(other.sizes):
        return False
    for i in range(len(one.sizes)):     # small numbers are the same objects
        if one.sizes[i] is not other.sizes[i] and one.sizes[i] != other.sizes[i]:
            return False
    return True


cdef inline bint _is_flat(Region region) noexcept:
    return region.sizes is None or len(region.sizes) == 1


cdef Stream _checked(Region target, Region source, object stream, str method):
    """Check all arguments of a copy, and return its stream. Raises if one of them is not valid."""
    cdef Stream found
    stream = known_stream(stream)
    check_region(target)
    check_region(source)
    found = stream_of_copy(target, source, stream)
    if found is None:
        refuse_no_stream(method)
    check_pair(target, source)
    if not are_apart(target, source) or (target.memory.context is not found.context
                                         and source.memory.context is not found.context):
        if refuse_unreachable(target, found) + refuse_unreachable(source, found):
            check_pair(target, source)  # again: a buffer may have grown while the driver was asked
    return found


cdef Stream stream_of_copy(Region target, Region source, object stream):
    """Return the stream of a copy: the argument, else the current one, or None.

    A copy between contexts runs on a stream of either.
    """
    if stream is not None:
        return stream
    if are_apart(target, source):
        return innermost_stream(target.memory.context, source.memory.context)
    return stream_for(None, device_side_of(target, source).memory.context)


# ---- copies between devices ----

cdef struct PeerCopy:
    CUdeviceptr target
    CUcontext target_context
    CUdeviceptr source
    CUcontext source_context
    size_t nbytes


cdef CUresult _peer_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef PeerCopy *copy = <PeerCopy *>arguments
    return cuMemcpyPeerAsync(copy.target, copy.target_context, copy.source, copy.source_context,
                             copy.nbytes, stream)


cdef bint are_apart(Region target, Region source) noexcept:
    """Whether a copy is between device memory of two contexts."""
    return not target.portable and not source.portable \
        and target.memory.context is not source.memory.context


cdef Token _copy_across(int name, Region target, Region source, Stream stream):
    """The part of `copy_async` for buffers that are apart.

    Outside of captures, such a copy needs no access.
    """
    cdef Operation operation
    cdef own_access uses[2]
    cdef PeerCopy copy
    cdef BoxCopy boxes
    cdef Token token
    stream.usable()
    check_pair(target, source)  # again: `usable` may let other threads run
    if stream.capture is not NULL:
        return _capture_across(name, target, source, stream)
    borrow(target, &uses[0], OWN_WRITE)
    borrow(source, &uses[1], OWN_READ)
    token = new_token(stream, source, target)
    if target.box is not NULL or source.box is not NULL:
        describe_copy(&boxes, target, source)
        boxes.across = True
        prepare(&operation, name, uses, 2, box_call, &boxes)
    else:
        copy.target, copy.target_context = pointer_of(target), target.memory.context.raw
        copy.source, copy.source_context = pointer_of(source), source.memory.context.raw
        copy.nbytes = target.nbytes
        prepare(&operation, name, uses, 2, _peer_call, &copy)
    reason = issue(&operation, stream, NULL, False)
    if reason > 0 and is_sticky(<CUresult>reason):
        find_lost(target.memory.context)
        find_lost(source.memory.context)
    if reason:
        refuse_regions(&operation, reason, stream, target, source)
    stand_for(token, &operation)
    return token


cdef Token _capture_across(int name, Region target, Region source, Stream stream):
    """The part of `_copy_across` for captures.

    Drivers capture copies between devices by address, but not cuMemcpyPeerAsync.
    """
    cdef Capture capture = <Capture>stream.capture
    # Other threads may end the capture while the driver is asked.
    cdef Holdings holdings = capture.plan.holdings
    cdef Context home = capture.origin.context
    cdef Token token
    if node_kind(name) == NO_NODE:
        stream.refuse_captured()
    need = access_for_copy(target, source, stream.context, capture.graph)
    if need is not None and stream.context is not home:
        raise CaptureError(
            f"{target.describe()} and {source.describe()} belong to two devices, and {stream!r} is"
            f" not of the context of {capture.graph}, which keeps its access only for nodes of that"
            f" context. Capture the copy on a stream of {home!r}")
    check_pair(target, source)  # again: a buffer may have grown while the driver was asked
    if target.box is not NULL or source.box is not NULL:
        token = _copy_boxes(name, target, source, stream)
    else:
        token = _copy_plain(name, target, source, stream)
    holdings.need(need)
    return token


cdef object access_for_copy(Region target, Region source, Context context, str graph):
    """Return the AccessNeed of a node in `context` that copies between contexts, or None."""
    return need_access(target if source.memory.context is context else source, context, graph)


cdef int find_lost(Context context) except -1:
    """Raise ContextLostError if the call that failed last has lost this context."""
    cdef const char *failed = last_failure()
    cdef CUresult status
    cdef size_t available = 0
    cdef size_t total = 0
    with nogil:
        status = in_cuMemGetInfo(context.raw, &available, &total)
        if is_sticky(status):
            cudadrv_table.note_failure(failed)
            context.check(status)
    return 0


# ---- the stream and the buffers of a copy ----


cdef int copy_and_wait(int name, Region target, Region source, object stream) except -1:
    """Copy a whole buffer to another one, and wait until the copy is complete."""
    check_region(target)
    check_region(source)
    check_pair(target, source)
    found = blocking_stream(stream_of_copy(target, source, stream), device_side_of(target, source))
    copy_async(name, target, source, found, None)._finish()
    return 0


cdef Token nothing_to_do(int name, Stream stream, object source, object target):
    """Return the token of an operation without bytes. It is complete, and borrows nothing."""
    cdef Operation operation
    cdef Token token
    stream.usable()
    token = new_token(stream, source, target)
    prepare(&operation, name, NULL, 0, NULL, NULL)
    operation.request.issued.clock = NULL
    operation.request.issued.slot = stream.order.slot
    operation.request.issued.seq = 0
    stand_for(token, &operation)
    if stream.capture is not NULL:
        token.asked = (<Capture>stream.capture).nothing(stream)
    return token


cdef Region device_side_of(Region target, Region source):
    """Return the buffer in whose context a copy runs.

    This is the buffer in device memory if there is one, else one in managed memory, if any.
    """
    return source if target.host_side or (target.portable and not source.portable) else target


cdef Stream blocking_stream(Stream stream, Region region):
    """Return the stream of a blocking method: `stream`, or the internal one if that is None."""
    return internal_stream(region.memory.context) if stream is None else stream


cdef Stream current_stream(object stream, Region region, str method):
    """The slow path of `required_stream`. Raises if there is no stream, or the buffer is unusable.
    """
    stream = known_stream(stream)
    check_region(region)
    found = stream_for(stream, region.memory.context)
    if found is None:
        refuse_no_stream(method)
    return found


cdef int refuse_other_dtype(Region region, object dtype, str other) except -1:
    if region.dtype is not dtype and region.dtype != dtype:
        raise TypeError(
            f"{region.describe()} and {other} have different dtypes; nothing is converted."
            f" Reinterpret the bytes with view({str(dtype)!r}), or convert the data first")
    return 0


cdef int check_pair(Region target, Region source) except -1:
    if target.dtype is not source.dtype and target.dtype != source.dtype:
        refuse_other_dtype(target, source.dtype, source.describe())
    if (target.box is not NULL or source.box is not NULL) and target.shape != source.shape:
        raise ValueError(f"{target.describe()} has shape {target.shape}, and {source.describe()}"
                         f" {source.shape}; copy between boxes of the same shape")
    if target.count != source.count:
        raise ValueError(f"{target.describe()} has {target.count} items, and {source.describe()}"
                         f" {source.count}; copy between parts of the same size: buffer[a:b]")
    if overlap(target, source) and (target.start != source.start or target.steps != source.steps):
        raise ValueError(f"{target.describe()} and {source.describe()} overlap; a copy needs"
                         " disjoint parts of a buffer")
    return 0
