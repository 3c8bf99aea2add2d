"""Copies between buffers of any kinds: checks, the driver call, the token."""

from cudadrv._context cimport Context
from cudadrv._driver cimport (
    CUresult, CUstream, bind_driver, cudadrv_table, cuMemcpyAsync,
    cuMemcpyDtoDAsync, cuMemcpyDtoHAsync, cuMemcpyHtoDAsync,
)
from cudadrv._likely cimport likely, unlikely
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._ownership cimport OWN_READ, OWN_WRITE, own_access
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region, borrow, check_region, pointer_of
from cudadrv._release cimport internal_stream
from cudadrv._stream cimport Stream, stream_for
from cudadrv._token cimport Token, new_token, stand_for

bind_driver(&cudadrv_table)


cdef CUresult copy_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Copy *copy = <Copy *>arguments
    if copy.source_is_host:
        if unlikely(copy.target_is_host):
            return cuMemcpyAsync(copy.target, copy.source, copy.nbytes, stream)
        return cuMemcpyHtoDAsync(copy.target, <void *><size_t>copy.source, copy.nbytes, stream)
    if copy.target_is_host:
        return cuMemcpyDtoHAsync(<void *><size_t>copy.target, copy.source, copy.nbytes, stream)
    return cuMemcpyDtoDAsync(copy.target, copy.source, copy.nbytes, stream)


cdef Token copy_async(int name, Region target, Region source, object stream, str method):
    """Queue a copy of a whole buffer to another one: what asynchronous methods do."""
    cdef Operation operation
    cdef own_access accesses[2]
    cdef Copy copy
    cdef Token token
    cdef Stream found
    if likely(isinstance(stream, Stream)) \
            and likely(_is_plain(target, source, (<Stream>stream).context)):
        found = <Stream>stream
    else:
        found = _checked(target, source, stream, method)
        if target.nbytes == 0 or pointer_of(target) == pointer_of(source):
            return nothing_to_do(name, found, source, target)
    borrow(target, &accesses[0], OWN_WRITE)
    borrow(source, &accesses[1], OWN_READ)
    copy.target = pointer_of(target)
    copy.source = pointer_of(source)
    copy.nbytes = target.nbytes
    copy.target_is_host = target.host_side
    copy.source_is_host = source.host_side
    token = new_token(found, source, target)
    prepare(&operation, name, accesses, 2, copy_call, &copy)
    reason = issue(&operation, found)
    if unlikely(reason):
        refuse_operation(&operation, reason, found, (target.describe(), source.describe()))
    stand_for(token, &operation)
    return token


cdef inline bint _is_plain(Region target, Region source, Context context) noexcept:
    """Whether there is nothing to refuse or to leave out, as in most copies on a usable stream."""
    return target.memory is not None and source.memory is not None \
        and target.memory is not source.memory \
        and target.memory.context is context and source.memory.context is context \
        and target.dtype is source.dtype and target.count == source.count and target.count \
        and not target.memory.state.closed and not source.memory.state.closed \
        and not target.moved and not source.moved \
        and pointer_of(target) != pointer_of(source)


cdef Stream _checked(Region target, Region source, object stream, str method):
    """The stream of a copy that may have to be refused."""
    cdef Stream found
    check_region(target)
    check_region(source)
    found = required_stream(stream, _device_side(target, source), method)
    _check_pair(target, source)
    refuse_other_device(target, found)
    refuse_other_device(source, found)
    return found


cdef int copy_and_wait(int name, Region target, Region source, object stream) except -1:
    """Copy a whole buffer to another one; complete on return."""
    cdef Region device_side
    check_region(target)
    check_region(source)
    _check_pair(target, source)
    device_side = _device_side(target, source)
    found = stream_for(stream, device_side.memory.context)
    copy_async(name, target, source, blocking_stream(found, device_side), None).wait()
    return 0


cdef Token nothing_to_do(int name, Stream stream, Region source, Region target):
    """The token of an operation without bytes: complete from the start, and borrows nothing."""
    cdef Operation operation
    cdef Token token
    stream.usable()
    refuse_other_device(target, stream)
    token = new_token(stream, source, target)
    prepare(&operation, name, NULL, 0, NULL, NULL)
    operation.request.issued.clock = NULL
    operation.request.issued.slot = stream.order.slot
    operation.request.issued.seq = 0
    stand_for(token, &operation)
    return token


cdef Region _device_side(Region target, Region source):
    """The buffer whose context a copy belongs to: the one that is more particular about it."""
    return source if target.host_side or (target.portable and not source.portable) else target


cdef Stream blocking_stream(Stream stream, Region region):
    """The stream of a blocking method: the one that was found, else the library's own."""
    return internal_stream(region.memory.context) if stream is None else stream


cdef Stream current_stream(object stream, Region region, str method):
    """As `required_stream`, where none was given; a buffer that cannot be used is refused first."""
    check_region(region)
    found = stream_for(stream, region.memory.context)
    if found is None:
        raise TypeError(
            f"{method} needs a stream: pass one, or call it inside a `with stream:` block")
    return found


cdef int refuse_device(Region region, Stream stream) except -1:
    raise ValueError(
        f"{region.describe()} belongs to {region.memory.context!r}, and {stream!r} to another"
        " context; use a stream of the buffer's context")


cdef int refuse_other_dtype(Region region, object dtype, str other) except -1:
    if region.dtype is not dtype and region.dtype != dtype:
        raise TypeError(
            f"{region.describe()} and {other} have different dtypes; nothing is converted."
            f" Reinterpret the bytes with view({str(dtype)!r}), or convert the data first")
    return 0


cdef int _check_pair(Region target, Region source) except -1:
    if target.dtype is not source.dtype and target.dtype != source.dtype:
        refuse_other_dtype(target, source.dtype, source.describe())
    if target.count != source.count:
        raise ValueError(f"{target.describe()} has {target.count} items, and {source.describe()}"
                         f" {source.count}; copy between parts of the same size: buffer[a:b]")
    if not target.portable and not source.portable \
            and target.memory.context is not source.memory.context:
        raise ValueError(
            f"{target.describe()} belongs to {target.memory.context!r}, and {source.describe()} to"
            f" {source.memory.context!r}; no stream reaches both. Copy to a LockedBuffer, and from"
            " there")
    if target.memory is source.memory and target.start != source.start \
            and target.start < source.start + source.nbytes \
            and source.start < target.start + target.nbytes:
        raise ValueError(f"{target.describe()} and {source.describe()} overlap; a copy needs"
                         " disjoint parts of a buffer")
    return 0
