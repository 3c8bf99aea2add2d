"""Copies between arrays and buffers, and between arrays. Those of NumPy arrays are in _staging."""

from libc.string cimport memset

from cudadrv._array_memory cimport Texels
from cudadrv._box cimport steps_of
from cudadrv._box_copy cimport MOST_PITCH
from cudadrv._copy cimport (
    MOST_READ_EARLY, are_apart, blocking_stream, find_lost, nothing_to_do,
)
from cudadrv._driver cimport (
    CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_SUCCESS, CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE,
    CU_MEMORYTYPE_HOST, CUdeviceptr, CUmemorytype, CUresult, CUstream, cuEventRecord,
    cuMemcpy3DAsync, cuMemcpy3DPeerAsync, cuStreamWaitEvent,
)
from cudadrv._engine cimport OWN_NON_BLOCKING, OWN_READ, OWN_WRITE, own_access
from cudadrv._errors cimport is_sticky
from cudadrv._event cimport marker_of
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._peers cimport refuse_other_context
from cudadrv._region cimport (
    Region, borrow, check_region, dtype_name, of_present_size, overlap, payload_of, pointer_of,
    refuse_regions,
)
from cudadrv._stream cimport (
    Stream, innermost_stream, known_stream, refuse_no_stream, stream_for,
)
from cudadrv._token cimport Token, new_token, stand_for

from cudadrv._errors import CaptureError


# ---- the driver's description of a copy ----

cdef void _aim_at_array(CUDA_MEMCPY3D *params, Texels texels, bint target) noexcept:
    """Describe the side of a copy that is an array, and the extents of the copy."""
    cdef size_t texel = texels.layout.texel
    params.WidthInBytes = texels.extents[0] * texel
    params.Height, params.Depth = texels.extents[1], texels.extents[2]
    if target:
        params.dstMemoryType, params.dstArray = CU_MEMORYTYPE_ARRAY, texels.raw
        params.dstXInBytes = texels.origin[0] * texel
        params.dstY, params.dstZ = texels.origin[1], texels.origin[2]
    else:
        params.srcMemoryType, params.srcArray = CU_MEMORYTYPE_ARRAY, texels.raw
        params.srcXInBytes = texels.origin[0] * texel
        params.srcY, params.srcZ = texels.origin[1], texels.origin[2]


cdef void _aim_at_memory(
    CUDA_MEMCPY3D *params, CUdeviceptr address, int type, size_t pitch, size_t height, bint target
) noexcept:
    """Describe the side of a copy that has rows. Slices are `height` rows apart."""
    if target:
        params.dstMemoryType = <CUmemorytype>type
        params.dstDevice, params.dstHost = address, <void *><size_t>address
        params.dstPitch, params.dstHeight = pitch, height
    else:
        params.srcMemoryType = <CUmemorytype>type
        params.srcDevice, params.srcHost = address, <void *><size_t>address
        params.srcPitch, params.srcHeight = pitch, height


cdef size_t slabs_of(Texels texels, size_t *nbytes) noexcept:
    """Return how many slices texels have, or rows if there is one slice. Sets the bytes of each."""
    cdef size_t row = texels.extents[0] * texels.layout.texel
    cdef bint by_slices = texels.extents[2] > 1
    nbytes[0] = row * texels.extents[1] if by_slices else row
    return texels.extents[2] if by_slices else texels.extents[1]


cdef void describe_staged_texels(
    ArrayCopy *copy, Texels texels, char *stage, bint inward, size_t first, size_t count
) noexcept:
    """Describe a copy between an array and a page-locked block with texels, without gaps.

    These are the texels of `count` slices, or rows, from `first` on: see `slabs_of`.
    """
    cdef CUDA_MEMCPY3D *params = &copy.params
    memset(copy, 0, sizeof(copy[0]))
    _aim_at_array(params, texels, inward)
    if texels.extents[2] > 1:
        params.Depth = count
        params.dstZ += first if inward else 0
        params.srcZ += 0 if inward else first
    else:
        params.Height = count
        params.dstY += first if inward else 0
        params.srcY += 0 if inward else first
    _aim_at_memory(&copy.params, <CUdeviceptr><size_t>stage, CU_MEMORYTYPE_HOST,
                   copy.params.WidthInBytes, copy.params.Height, not inward)


cdef int describe_texels(ArrayCopy *copy, Region target, Region source) except -1:
    """Describe a copy, of which at least one side is Texels."""
    memset(copy, 0, sizeof(copy[0]))
    for region in (target, source):
        if isinstance(region, Texels):
            _aim_at_array(&copy.params, region, region is target)
    for region in (target, source):
        if not isinstance(region, Texels):
            _describe_memory(&copy.params, source if region is target else target, region,
                             region is target)
    copy.target_context, copy.source_context = \
        target.memory.context.raw, source.memory.context.raw
    copy.across = are_apart(target, source)
    return 0


cdef int _describe_memory(
    CUDA_MEMCPY3D *params, Texels texels, Region region, bint target
) except -1:
    """Describe the side of a copy that is a buffer. Raises ValueError if no copy can reach it."""
    cdef tuple sizes = texels.item_shape()
    cdef tuple steps = steps_of(sizes, region.itemsize) if region.box is NULL else region.strides
    cdef object texel = texels.layout.texel
    cdef dict apart = {0: texel, 1: params.WidthInBytes, 2: None}   # by axis: bytes to the next one
    for axis, size, step in zip(texels.axes, sizes, steps):
        if size > 1:
            apart[axis] = step
    pitch, slice = apart[1], apart[2]
    width, height = params.WidthInBytes, params.Height
    if slice is None:
        slice = pitch * height
    if params.Height == 1 and params.Depth > 1:     # only the slices are apart
        pitch = slice
        height = 1
    elif slice % pitch == 0:
        height = slice // pitch
    if apart[0] != texel or texels.layout.channels > 1 and steps[-1] != region.itemsize \
            or pitch < width or params.Depth > 1 and height * pitch != slice:
        raise ValueError(
            f"{region.describe()} has strides {region.strides} (bytes), and a copy from or to an"
            " array needs rows without gaps between their texels, and slices that are a whole"
            " number of rows apart. Copy through a buffer without gaps")
    if pitch > MOST_PITCH:
        raise ValueError(f"rows are {pitch} bytes apart, and a copy of the device takes at most"
                         f" {MOST_PITCH} (MAX_PITCH)")
    _aim_at_memory(params, pointer_of(region),
                   CU_MEMORYTYPE_HOST if region.host_side else CU_MEMORYTYPE_DEVICE,
                   pitch, height, target)
    return 0


cdef CUresult array_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef ArrayCopy *copy = <ArrayCopy *>arguments
    cdef CUresult status
    if copy.marker is not NULL:     # see _copy
        status = cuEventRecord(copy.marker, stream)
        if status == CUDA_SUCCESS:
            status = cuStreamWaitEvent(stream, copy.marker, 0)
        if status != CUDA_SUCCESS:
            return status
    if copy.across:
        return _copy_between(copy, stream)
    return cuMemcpy3DAsync(&copy.params, stream)


cdef CUresult _copy_between(ArrayCopy *copy, CUstream stream) noexcept nogil:
    """Copy between two contexts."""
    cdef CUDA_MEMCPY3D *one = &copy.params
    cdef CUDA_MEMCPY3D_PEER params
    memset(&params, 0, sizeof(params))
    params.dstXInBytes, params.dstY, params.dstZ = one.dstXInBytes, one.dstY, one.dstZ
    params.srcXInBytes, params.srcY, params.srcZ = one.srcXInBytes, one.srcY, one.srcZ
    params.dstMemoryType, params.srcMemoryType = one.dstMemoryType, one.srcMemoryType
    params.dstDevice, params.srcDevice = one.dstDevice, one.srcDevice
    params.dstArray, params.srcArray = one.dstArray, one.srcArray
    params.dstContext, params.srcContext = copy.target_context, copy.source_context
    params.dstPitch, params.srcPitch = one.dstPitch, one.srcPitch
    params.dstHeight, params.srcHeight = one.dstHeight, one.srcHeight
    params.WidthInBytes, params.Height, params.Depth = one.WidthInBytes, one.Height, one.Depth
    return cuMemcpy3DPeerAsync(&params, stream)


# ---- the operation ----

cdef Token copy_texels_async(
    int name, Region target, Region source, object stream, object written, object read, str method
):
    """Queue a copy, of which at least one side is Texels.

    `written` and `read` are the objects that the token returns.
    """
    cdef Operation operation
    cdef own_access accesses[2]
    cdef ArrayCopy copy
    cdef Token token
    cdef Stream found
    stream = known_stream(stream)
    check_region(target)
    check_region(source)
    target, source = of_present_size(target), of_present_size(source)
    found = _stream_of(target, source, stream)
    if found is None:
        refuse_no_stream(method)
    check_texels(target, source)
    found.usable()
    _refuse_stream(target, source, found)
    if target.count == 0 or are_same_texels(target, source):
        return nothing_to_do(name, found, read, written)
    describe_texels(&copy, target, source)
    if found.order.order != OWN_NON_BLOCKING and source.host_side and found.capture is NULL \
            and payload_of(source) <= MOST_READ_EARLY:
        copy.marker = marker_of(found.context).raw
    borrow(target, &accesses[0], OWN_WRITE)
    borrow(source, &accesses[1], OWN_READ)
    token = new_token(found, read, written)
    prepare(&operation, name, accesses, 2, array_call, &copy)
    reason = issue(&operation, found, NULL, False)
    if reason > 0 and copy.across and is_sticky(<CUresult>reason):
        find_lost(target.memory.context)
        find_lost(source.memory.context)
    if reason:
        refuse_regions(&operation, reason, found, target, source)
    stand_for(token, &operation)
    return token


cdef int copy_texels_and_wait(
    int name, Region target, Region source, object stream, object written, object read
) except -1:
    """As `copy_texels_async`, and wait until the copy is complete."""
    check_region(target)
    check_region(source)
    found = _stream_of(target, source, stream)
    found = blocking_stream(found, target if isinstance(target, Texels) else source)
    copy_texels_async(name, target, source, found, written, read, None)._finish()
    return 0


cdef Stream _stream_of(Region target, Region source, object stream):
    """Return the stream of a copy: the argument, else the current one, or None."""
    cdef Region texels = target if isinstance(target, Texels) else source
    if stream is not None:
        return stream
    if are_apart(target, source):
        return innermost_stream(target.memory.context, source.memory.context)
    return stream_for(None, texels.memory.context)


cdef int _refuse_stream(Region target, Region source, Stream stream) except -1:
    """Raise if the stream cannot copy between the two: an array is used in its own context."""
    if not are_apart(target, source):
        refuse_other_context(target, stream)
        refuse_other_context(source, stream)
    elif target.memory.context is not stream.context \
            and source.memory.context is not stream.context:
        refuse_other_context(target, stream)
    elif stream.capture is not NULL:
        raise CaptureError(
            f"an array cannot be copied between contexts in a capture: {target.describe()} belongs"
            f" to {target.memory.context!r}, and {source.describe()} to {source.memory.context!r}."
            " Copy before or after the launches of the graph")
    return 0


cdef bint are_same_texels(Region target, Region source) noexcept:
    """Whether both sides of a copy are the same texels."""
    return target.memory is source.memory and target.start == source.start


cdef int check_texels(Region target, Region source) except -1:
    """Raise TypeError or ValueError if two regions, of which one is Texels, cannot be copied."""
    cdef Texels texels = target if isinstance(target, Texels) else source
    cdef Region other = source if texels is target else target
    if isinstance(other, Texels):
        if texels.layout.dtype != (<Texels>other).layout.dtype \
                or texels.layout.channels != (<Texels>other).layout.channels:
            raise TypeError(f"{target.describe()} and {source.describe()} have different texels;"
                            " nothing is converted")
        if target.shape != source.shape:
            raise ValueError(f"{target.describe()} has shape {target.shape}, and"
                             f" {source.describe()} {source.shape}; copy between parts of the same"
                             " shape")
        if overlap(target, source) and not are_same_texels(target, source):
            raise ValueError(f"{target.describe()} and {source.describe()} overlap; a copy needs"
                             " disjoint parts of an array")
        return 0
    if other.dtype != texels.layout.dtype:
        raise TypeError(
            f"{other.describe()} and the channels of {texels.describe()} have different dtypes;"
            f" nothing is converted. Reinterpret the bytes with"
            f" view({dtype_name(texels.layout.dtype)!r}), or convert the data first")
    return check_items(texels, other.describe(), other.shape, other.count, other.box is not NULL)


cdef int check_items(
    Texels texels, str other, tuple shape, object count, bint shaped
) except -1:
    """Raise ValueError if something with a shape does not have the items of an array.

    Something with one dimension may have the items in C order, unless it has to be `shaped`.
    """
    wanted = texels.item_shape()
    if shape != wanted and (
            shaped or len(shape) != 1 or count != texels.count * texels.layout.channels):
        raise ValueError(f"{other} has shape {shape}, and the items of {texels.describe()} have"
                         f" shape {wanted}; copy between parts of the same shape")
    return 0
