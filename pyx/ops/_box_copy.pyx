"""The driver's calls for copies and fills of boxes: parts of buffers whose rows have gaps."""

from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from cudadrv._box cimport lay_out_both
from cudadrv._driver cimport (
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_SUCCESS, CU_MEMORYTYPE_DEVICE,
    CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUdeviceptr, CUmemorytype, CUresult, CUstream,
    cuEventRecord, cuMemcpy2DAsync, cuMemcpy3DAsync, cuMemcpy3DPeerAsync, cuMemsetD2D16Async,
    cuMemsetD2D32Async, cuMemsetD2D8Async, cuStreamWaitEvent, enter_context, leave_context, likely,
)
from cudadrv._engine cimport own_box
from cudadrv._region cimport Region, pointer_of

# ---- copies ----

cdef int describe_copy(BoxCopy *copy, Region target, Region source) except -1:
    """Describe a copy between regions of the same shape, at least one of which is a box."""
    # In a capture, a copy between page-locked buffers is a cuMemcpyAsync.
    cdef bint on_host = source.host_side and target.host_side
    cdef int host = CU_MEMORYTYPE_UNIFIED if on_host else CU_MEMORYTYPE_HOST
    copy.target, copy.source = pointer_of(target), pointer_of(source)
    copy.target_type = host if target.host_side else CU_MEMORYTYPE_DEVICE
    copy.source_type = host if source.host_side else CU_MEMORYTYPE_DEVICE
    copy.target_context, copy.source_context = \
        target.memory.context.raw, source.memory.context.raw
    copy.marker, copy.across = NULL, False
    if target.box is not NULL and source.box is NULL:
        copy.to, copy.of = target.box[0], _packed(target.box)
    elif target.box is NULL and source.box is not NULL:
        copy.to, copy.of = _packed(source.box), source.box[0]
    elif target.box is not NULL and _same_rows(target.box, source.box):
        copy.to, copy.of = target.box[0], source.box[0]
    else:   # the dimensions of the two were joined in different ways, or both have no gaps
        lay_out_both(
            target.shape, target.strides, source.strides, target.itemsize, &copy.to, &copy.of)
    check_pitch(&copy.to)
    return check_pitch(&copy.of)


cdef own_box _packed(const own_box *box) noexcept:
    """Return the box of the same rows without gaps."""
    cdef own_box packed = box[0]
    packed.pitch, packed.slice = packed.width, packed.width * packed.rows
    return packed


cdef bint _same_rows(const own_box *one, const own_box *other) noexcept:
    """Whether two boxes of one shape have equal rows and slices."""
    return one.width == other.width and one.rows == other.rows and one.slices == other.slices


cdef void describe_staged(BoxCopy *copy, Region region, char *stage, bint inward) noexcept:
    """Describe a copy between a box and a page-locked block with its items, without gaps."""
    cdef own_box packed = _packed(region.box)
    copy.marker, copy.across = NULL, False
    copy.target = pointer_of(region) if inward else <CUdeviceptr><size_t>stage
    copy.source = <CUdeviceptr><size_t>stage if inward else pointer_of(region)
    copy.to, copy.of = (region.box[0], packed) if inward else (packed, region.box[0])
    kind = CU_MEMORYTYPE_UNIFIED if region.host_side else CU_MEMORYTYPE_DEVICE
    host = CU_MEMORYTYPE_UNIFIED if region.host_side else CU_MEMORYTYPE_HOST
    copy.target_type, copy.source_type = (kind, host) if inward else (host, kind)


cdef int check_pitch(own_box *box) except -1:
    if box.pitch > MOST_PITCH:
        raise ValueError(f"rows are {box.pitch} bytes apart, and a copy of the device takes at most"
                         f" {MOST_PITCH} (MAX_PITCH)")
    return 0


cdef void fill_params(BoxCopy *copy, CUDA_MEMCPY3D *params) noexcept nogil:
    """Describe a copy as the driver's parameters of a copy with three dimensions."""
    memset(params, 0, sizeof(CUDA_MEMCPY3D))
    params.dstMemoryType = <CUmemorytype>copy.target_type
    params.srcMemoryType = <CUmemorytype>copy.source_type
    params.dstDevice, params.dstHost = copy.target, <void *><size_t>copy.target
    params.srcDevice, params.srcHost = copy.source, <void *><size_t>copy.source
    params.dstPitch, params.srcPitch = copy.to.pitch, copy.of.pitch
    params.dstHeight, params.srcHeight = height_of(&copy.to), height_of(&copy.of)
    params.WidthInBytes, params.Height, params.Depth = \
        copy.to.width, copy.to.rows, copy.to.slices


cdef inline size_t height_of(const own_box *box) noexcept nogil:
    """Return how many rows a slice is apart from the next one."""
    return box.slice // box.pitch if box.slices > 1 else box.rows


cdef CUresult box_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef BoxCopy *copy = <BoxCopy *>arguments
    cdef CUDA_MEMCPY3D params
    cdef CUresult status = CUDA_SUCCESS
    if copy.marker is not NULL:     # see _copy
        status = cuEventRecord(copy.marker, stream)
        if status == CUDA_SUCCESS:
            status = cuStreamWaitEvent(stream, copy.marker, 0)
        if status != CUDA_SUCCESS:
            return status
    if copy.across:
        return _call_across(copy, stream)
    if likely(copy.to.slices == 1):
        return _call_flat(copy, stream)
    fill_params(copy, &params)
    return cuMemcpy3DAsync(&params, stream)


cdef CUresult _call_flat(BoxCopy *copy, CUstream stream) noexcept nogil:
    cdef CUDA_MEMCPY2D params
    memset(&params, 0, sizeof(params))
    params.dstMemoryType = <CUmemorytype>copy.target_type
    params.srcMemoryType = <CUmemorytype>copy.source_type
    params.dstDevice, params.dstHost = copy.target, <void *><size_t>copy.target
    params.srcDevice, params.srcHost = copy.source, <void *><size_t>copy.source
    params.dstPitch, params.srcPitch = copy.to.pitch, copy.of.pitch
    params.WidthInBytes, params.Height = copy.to.width, copy.to.rows
    return cuMemcpy2DAsync(&params, stream)


cdef CUresult _call_across(BoxCopy *copy, CUstream stream) noexcept nogil:
    """Copy between two contexts. The parameters begin with the fields of a copy in one context."""
    cdef CUDA_MEMCPY3D_PEER params
    memset(&params, 0, sizeof(params))
    params.dstMemoryType = params.srcMemoryType = CU_MEMORYTYPE_DEVICE
    params.dstDevice, params.srcDevice = copy.target, copy.source
    params.dstContext, params.srcContext = copy.target_context, copy.source_context
    params.dstPitch, params.srcPitch = copy.to.pitch, copy.of.pitch
    params.dstHeight, params.srcHeight = height_of(&copy.to), height_of(&copy.of)
    params.WidthInBytes, params.Height, params.Depth = \
        copy.to.width, copy.to.rows, copy.to.slices
    return cuMemcpy3DPeerAsync(&params, stream)


# ---- fills ----

cdef int describe_fill(
    BoxFill *fill, Region region, size_t itemsize, const unsigned char *item
) except -1:
    """Describe the fill of a box. `shape_fill` has computed the item and its size.

    The item may be shorter than that of the buffer: one byte, if all its bytes are equal.
    """
    fill.target, fill.itemsize, fill.box = pointer_of(region), itemsize, region.box[0]
    memcpy(fill.item, item, sizeof(fill.item))
    if (fill.box.pitch | fill.box.slice) % min(itemsize, <size_t>4):
        raise ValueError(
            f"the rows of {region.describe()} are {fill.box.pitch} bytes apart, and the device"
            f" fills items of {itemsize} bytes only at multiples of {min(itemsize, <size_t>4)}."
            " Copy from an array instead: copy_from(numpy.full(shape, value, dtype))")
    return check_pitch(&fill.box)


cdef bint _has_columns(const BoxFill *fill) noexcept nogil:
    """Whether the words of 4 bytes of an item differ."""
    return fill.itemsize > 4 and memcmp(fill.item, &fill.item[4], fill.itemsize - 4) != 0


cdef int refuse_several(BoxFill *fill, Region region) except -1:
    """Refuse a fill that takes several operations of the driver, for a graph."""
    cdef own_box *box = &fill.box
    if _has_columns(fill) or min(box.rows, box.slices) > 1:
        raise ValueError(
            f"the device fills {region.describe()} by several operations, and a node of a graph has"
            " one: an item has words of 4 bytes that differ, or the box has several slices. Fill"
            " slices one by one, or copy from a buffer that has the items")
    return 0


cdef CUresult fill_box_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef BoxFill *fill = <BoxFill *>arguments
    cdef own_box *box = &fill.box
    cdef CUresult status = CUDA_SUCCESS
    cdef bint pushed = False
    if _has_columns(fill):
        # The current context decides which memory a copy may use. `issue` would not repeat a copy
        # that fails, because the fill of the first row is queued before it.
        status = enter_context(fill.context, &pushed)
        if status == CUDA_SUCCESS:
            status = _fill_by_copies(fill, stream, queued)
            leave_context(pushed)
        return status
    # Each call fills a matrix: the rows of a slice, or the rows with the same number of all slices.
    cdef bint by_slices = box.slices <= box.rows
    cdef size_t calls = box.slices if by_slices else box.rows
    cdef size_t apart = box.slice if by_slices else box.pitch
    cdef size_t pitch = box.pitch if by_slices else box.slice
    cdef size_t height = box.rows if by_slices else box.slices
    cdef size_t index
    for index in range(calls):
        queued[0] = index > 0
        status = _fill_rows(fill.target + index * apart, pitch, fill.itemsize, fill.item, box.width,
                            height, stream)
        if status != CUDA_SUCCESS:
            break
    return status


cdef CUresult _fill_rows(
    CUdeviceptr target, size_t pitch, size_t itemsize, const unsigned char *item, size_t width,
    size_t height, CUstream stream
) noexcept nogil:
    cdef uint16_t half = 0
    cdef uint32_t word = 0
    if itemsize == 1:
        return cuMemsetD2D8Async(target, pitch, item[0], width, height, stream)
    if itemsize == 2:
        memcpy(&half, item, 2)
        return cuMemsetD2D16Async(target, pitch, half, width // 2, height, stream)
    memcpy(&word, item, 4)
    return cuMemsetD2D32Async(target, pitch, word, width // 4, height, stream)


cdef CUresult _fill_by_copies(
    BoxFill *fill, CUstream stream, bint *queued
) noexcept nogil:
    """Fill the first row, and then copy the rows that are filled to those that are not, each time
    twice as many; then the slices, in the same way. The first row is filled as a matrix, whose rows
    are the items, and whose columns have one word each.
    """
    cdef own_box *box = &fill.box
    cdef size_t done = 1
    cdef size_t column
    cdef uint32_t word = 0
    cdef CUresult status = CUDA_SUCCESS
    for column in range(fill.itemsize // 4):
        memcpy(&word, &fill.item[4 * column], 4)
        if status == CUDA_SUCCESS:
            queued[0] = column > 0
            status = cuMemsetD2D32Async(fill.target + 4 * column, fill.itemsize, word, 1,
                                        box.width // fill.itemsize, stream)
    if status == CUDA_SUCCESS:
        queued[0] = True
    while status == CUDA_SUCCESS and done < box.rows:
        status = _copy_within(fill, done * box.pitch, min(done, box.rows - done), 1, stream)
        done *= 2
    done = 1
    while status == CUDA_SUCCESS and done < box.slices:
        status = _copy_within(
            fill, done * box.slice, box.rows, min(done, box.slices - done), stream)
        done *= 2
    return status


cdef CUresult _copy_within(
    BoxFill *fill, size_t offset, size_t rows, size_t slices, CUstream stream
) noexcept nogil:
    """Copy the first rows and slices of a box to a place behind them."""
    cdef BoxCopy copy
    cdef bint queued = False
    memset(&copy, 0, sizeof(copy))
    copy.target, copy.source = fill.target + offset, fill.target
    copy.target_type = copy.source_type = CU_MEMORYTYPE_UNIFIED
    copy.to = fill.box
    copy.to.rows, copy.to.slices = rows, slices
    copy.of = copy.to
    return box_call(&copy, stream, &queued)
