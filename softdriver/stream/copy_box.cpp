#include "api/call.h"
#include "api/state.h"
#include "stream/capture.h"
#include "stream/transfer.h"

// This file implements copies of several rows and slices: cuMemcpy2D, cuMemcpy3D and so on. They
// are all converted to 3-D copies first.

namespace soft {
namespace {

constexpr size_t max_pitch = 2147483647;

using Box = CUDA_MEMCPY3D_v2;

// One end of a box copy, as the program specified it.
struct Corner {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t level;
    size_t x, y, z;       // offset of the first byte, in bytes, rows and slices
    size_t pitch, height; // distance from row to row in bytes, and from slice to slice in rows
};

Corner source_of(const Box &box) {
    return {box.srcMemoryType, box.srcHost, box.srcDevice, box.srcArray, box.srcLOD,
            box.srcXInBytes,   box.srcY,    box.srcZ,      box.srcPitch, box.srcHeight};
}

Corner target_of(const Box &box) {
    return {box.dstMemoryType, box.dstHost, box.dstDevice, box.dstArray, box.dstLOD,
            box.dstXInBytes,   box.dstY,    box.dstZ,      box.dstPitch, box.dstHeight};
}

bool known(CUmemorytype type) {
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE ||
           type == CU_MEMORYTYPE_ARRAY || type == CU_MEMORYTYPE_UNIFIED;
}

// Replaces a pitch or height of 0 by the least one that is valid. Returns false if rows or slices
// overlap, or if the pitch is too large.
bool complete(const Box &box, Corner &corner) {
    size_t row, rows;
    if (__builtin_add_overflow(corner.x, box.WidthInBytes, &row) ||
        __builtin_add_overflow(corner.y, box.Height, &rows))
        return false;
    if (!corner.pitch)
        corner.pitch = row;
    if (!corner.height)
        corner.height = rows;
    return corner.pitch >= row && corner.pitch <= max_pitch && corner.height >= rows;
}

// Computes the offset from the base address to the first byte, and the number of bytes from the
// first to the last. Returns false if a number overflows.
bool measure(const Box &box, const Corner &corner, size_t &offset, size_t &span) {
    size_t rows, slices, above, last;
    return !(__builtin_mul_overflow(corner.z, corner.height, &rows) ||
             __builtin_add_overflow(rows, corner.y, &rows) ||
             __builtin_mul_overflow(rows, corner.pitch, &above) ||
             __builtin_add_overflow(above, corner.x, &offset) ||
             __builtin_mul_overflow(box.Depth - 1, corner.height, &slices) ||
             __builtin_add_overflow(slices, box.Height - 1, &slices) ||
             __builtin_mul_overflow(slices, corner.pitch, &last) ||
             __builtin_add_overflow(last, box.WidthInBytes, &span));
}

// Locates an end of a copy in an array. The end must consist of whole elements.
CUresult locate_in_array(const Box &box, const Corner &corner, Place &place) {
    ArrayPtr array = find_array(corner.array);
    if (!array || corner.level)
        return CUDA_ERROR_INVALID_VALUE;
    auto inside = [](size_t begin, size_t count, size_t all) {
        return begin <= all && count <= all - begin;
    };
    if (!inside(corner.x, box.WidthInBytes, array->row_bytes()) ||
        !inside(corner.y, box.Height, array->rows()) ||
        !inside(corner.z, box.Depth, array->slices()) || corner.x % array->element ||
        box.WidthInBytes % array->element)
        return CUDA_ERROR_INVALID_VALUE;
    place.pitch = array->row_bytes();
    place.slice = array->slice_bytes();
    return locate_array(corner.array, corner.x, corner.y, corner.z, place);
}

CUresult locate(const Box &box, Corner corner, Place &place) {
    if (corner.type == CU_MEMORYTYPE_ARRAY)
        return locate_in_array(box, corner, place);
    size_t offset, span;
    if (!complete(box, corner) || !measure(box, corner, offset, span))
        return CUDA_ERROR_INVALID_VALUE;
    place.pitch = corner.pitch;
    place.slice = corner.pitch * corner.height;
    uintptr_t begin;
    bool host = corner.type == CU_MEMORYTYPE_HOST;
    uintptr_t base = host ? reinterpret_cast<uintptr_t>(corner.host) : corner.device;
    if (__builtin_add_overflow(base, offset, &begin))
        return CUDA_ERROR_INVALID_VALUE;
    // Refuse an offset that leads from one allocation into another, or from an invalid base address
    // to a valid address.
    bool device = corner.type == CU_MEMORYTYPE_DEVICE;
    const Allocation *from = find_allocation(base), *to = find_allocation(begin);
    if (!device && (from ? from != to : !to && never_host_memory(base)))
        return CUDA_ERROR_INVALID_VALUE;
    if (host)
        return locate_host(reinterpret_cast<void *>(begin), span, place);
    return device ? locate_device(begin, span, place) : locate_any(begin, span, place);
}

} // namespace

CUresult read_box(const Box &box, Transfer &transfer) {
    transfer.width = box.WidthInBytes;
    transfer.rows = box.Height;
    transfer.slices = box.Depth;
    if (!box.WidthInBytes || !box.Height || !box.Depth)
        return CUDA_SUCCESS;
    if (!known(box.srcMemoryType) || !known(box.dstMemoryType))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = locate(box, source_of(box), transfer.source))
        return status;
    return locate(box, target_of(box), transfer.target);
}

namespace {

// Returns an end of a transfer in the form in which a program specifies it.
Corner corner_of(const Place &place) {
    Corner corner = {};
    if (place.array) {
        const Array &array = *place.array;
        size_t offset = place.address - array.address;
        corner.type = CU_MEMORYTYPE_ARRAY;
        corner.array = array.handle;
        corner.z = offset / array.slice_bytes();
        corner.y = offset % array.slice_bytes() / array.row_bytes();
        corner.x = offset % array.row_bytes();
        return corner;
    }
    corner.type = place.unified     ? CU_MEMORYTYPE_UNIFIED
                  : place.on_host() ? CU_MEMORYTYPE_HOST
                                    : CU_MEMORYTYPE_DEVICE;
    if (corner.type == CU_MEMORYTYPE_HOST)
        corner.host = reinterpret_cast<void *>(place.address);
    else
        corner.device = place.address;
    corner.pitch = place.pitch;
    corner.height = place.pitch ? place.slice / place.pitch : 0;
    return corner;
}

} // namespace

CUDA_MEMCPY3D_v2 box_of(const Transfer &transfer) {
    Box box = {};
    Corner source = corner_of(transfer.source), target = corner_of(transfer.target);
    box.srcMemoryType = source.type;
    box.srcHost = source.host;
    box.srcDevice = source.device;
    box.srcArray = source.array;
    box.srcXInBytes = source.x;
    box.srcY = source.y;
    box.srcZ = source.z;
    box.srcPitch = source.pitch;
    box.srcHeight = source.height;
    box.dstMemoryType = target.type;
    box.dstHost = const_cast<void *>(target.host);
    box.dstDevice = target.device;
    box.dstArray = target.array;
    box.dstXInBytes = target.x;
    box.dstY = target.y;
    box.dstZ = target.z;
    box.dstPitch = target.pitch;
    box.dstHeight = target.height;
    box.WidthInBytes = transfer.width;
    box.Height = transfer.rows;
    box.Depth = transfer.slices;
    return box;
}

namespace {

CUresult to_box(const CUDA_MEMCPY3D_v2 *copy, Box &box) {
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    box = *copy;
    return CUDA_SUCCESS;
}

// Copies the fields that CUDA_MEMCPY2D, CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have in common.
template <class Copy> Box common(const Copy &copy) {
    Box box = {};
    box.srcXInBytes = copy.srcXInBytes;
    box.srcY = copy.srcY;
    box.srcMemoryType = copy.srcMemoryType;
    box.srcHost = copy.srcHost;
    box.srcDevice = copy.srcDevice;
    box.srcArray = copy.srcArray;
    box.srcPitch = copy.srcPitch;
    box.dstXInBytes = copy.dstXInBytes;
    box.dstY = copy.dstY;
    box.dstMemoryType = copy.dstMemoryType;
    box.dstHost = copy.dstHost;
    box.dstDevice = copy.dstDevice;
    box.dstArray = copy.dstArray;
    box.dstPitch = copy.dstPitch;
    box.WidthInBytes = copy.WidthInBytes;
    box.Height = copy.Height;
    box.Depth = 1;
    return box;
}

CUresult to_box(const CUDA_MEMCPY2D_v2 *copy, Box &box) {
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    box = common(*copy);
    return CUDA_SUCCESS;
}

CUresult to_box(const CUDA_MEMCPY3D_PEER *copy, Box &box) {
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    box = common(*copy);
    box.srcZ = copy->srcZ;
    box.srcLOD = copy->srcLOD;
    box.srcHeight = copy->srcHeight;
    box.dstZ = copy->dstZ;
    box.dstLOD = copy->dstLOD;
    box.dstHeight = copy->dstHeight;
    box.Depth = copy->Depth;
    return CUDA_SUCCESS;
}

template <class Copy>
CUresult check_access(const Copy &, const Context &context, const Transfer &transfer) {
    return check_access(context, transfer.target, transfer.source);
}

CUresult check_access(const CUDA_MEMCPY3D_PEER &copy, const Context &, const Transfer &) {
    if (copy.srcMemoryType != CU_MEMORYTYPE_HOST)
        if (CUresult status = check_named(copy.srcContext))
            return status;
    return copy.dstMemoryType == CU_MEMORYTYPE_HOST ? CUDA_SUCCESS : check_named(copy.dstContext);
}

template <class Copy> CUresult read(const Copy *copy, const Context &context, Transfer &transfer) {
    Box box;
    if (CUresult status = to_box(copy, box))
        return status;
    if (CUresult status = read_box(box, transfer))
        return status;
    return check_access(*copy, context, transfer);
}

template <class Copy> CUresult now(Call &call, const Copy *copy) {
    Transfer transfer{};
    if (CUresult status = read(copy, *call.context, transfer))
        return status;
    return transfer.bytes() ? transfer_now(call, transfer) : CUDA_SUCCESS;
}

template <class Copy> CUresult later(Call &call, const Copy *copy, CUstream handle) {
    constexpr bool names_contexts = std::is_same_v<Copy, CUDA_MEMCPY3D_PEER>;
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (names_contexts && stream->capture)
        return refuse_captured(*stream);
    Transfer transfer{};
    if (CUresult status = read(copy, accessing(call, *stream), transfer))
        return status;
    return transfer.bytes() ? transfer_later(call, *stream, transfer) : CUDA_SUCCESS;
}

} // namespace

#define SOFT_BOX_API(symbol, type)                                                                 \
    SOFT_DEFAULT_API(symbol, (const type *copy), (copy)) { return now(call, copy); }
#define SOFT_BOX_ASYNC_API(symbol, type)                                                           \
    SOFT_STREAM_API(symbol, (const type *copy, CUstream stream), (copy, stream)) {                 \
        return later(call, copy, stream);                                                          \
    }

SOFT_BOX_API(cuMemcpy2D_v2, CUDA_MEMCPY2D_v2)
SOFT_BOX_API(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D_v2)
SOFT_BOX_API(cuMemcpy3D_v2, CUDA_MEMCPY3D_v2)
SOFT_BOX_API(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER)
SOFT_BOX_ASYNC_API(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D_v2)
SOFT_BOX_ASYNC_API(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D_v2)
SOFT_BOX_ASYNC_API(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER)

} // namespace soft
