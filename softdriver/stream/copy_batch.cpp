#include "api/call.h"
#include "api/state.h"
#include "stream/transfer.h"

#include <algorithm>
#include <tuple>

// This file implements copies with attributes, alone and in batches: cuMemcpyBatchAsync,
// cuMemcpyWithAttributesAsync and so on. If one copy of a batch is invalid, the call submits none.

namespace soft {
namespace {

// When a copy may read its source: the values of CUmemcpySrcAccessOrder, which older headers lack.
enum class Order { Stream = 1, DuringCall = 2, Any = 3 };

constexpr unsigned prefer_overlap = 1; // CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE: only a hint
constexpr int pointer_operand = 1;     // CU_MEMCPY_OPERAND_TYPE_POINTER
constexpr int array_operand = 2;
constexpr size_t whole_batch = SIZE_MAX; // the index that stands for an error of the call itself

// The structures of cuda.h, which older headers lack.
struct Attributes {
    int order;
    CUmemLocation source_hint, target_hint;
    unsigned flags;
};

struct Operand {
    int type;
    union {
        struct {
            CUdeviceptr address;
            size_t row, layer; // distance from row to row in elements, and between slices in rows
            CUmemLocation hint;
        } pointer;
        struct {
            CUarray array;
            size_t x, y, z;
        } array; // the offsets are in elements
    };
};

struct BoxCopy {
    Operand source, target;
    size_t width, height, depth;
    int order;
    unsigned flags;
};

#if CUDA_VERSION >= 12080
static_assert(sizeof(Attributes) == sizeof(CUmemcpyAttributes));
static_assert(sizeof(BoxCopy) == sizeof(CUDA_MEMCPY3D_BATCH_OP));
#endif

struct Copy {
    Transfer transfer;
    Order order = Order::Stream;
};

using Copies = std::vector<Copy>;

CUresult read_order(int order, unsigned flags, Copy &copy) {
    if (order < static_cast<int>(Order::Stream) || order > static_cast<int>(Order::Any))
        return CUDA_ERROR_INVALID_VALUE;
    copy.order = static_cast<Order>(order);
    return flags & ~prefer_overlap ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult read_row(const Context &context, CUdeviceptr target, CUdeviceptr source, size_t bytes,
                  Transfer &transfer) {
    transfer.width = bytes;
    if (!bytes)
        return CUDA_SUCCESS;
    if (CUresult status = locate_any(source, bytes, transfer.source))
        return status;
    if (CUresult status = locate_any(target, bytes, transfer.target))
        return status;
    return check_access(context, transfer.target, transfer.source);
}

// Returns the unit of a copy's offsets and extents, in bytes: the element size of its array, or 1
// if neither end is an array. Returns 0 if an array does not exist, or if two arrays have elements
// of different sizes.
size_t element_of(const BoxCopy &given) {
    size_t element = 0;
    for (const Operand *operand : {&given.source, &given.target}) {
        if (operand->type != array_operand)
            continue;
        ArrayPtr array = find_array(operand->array.array);
        if (!array || (element && element != array->element))
            return 0;
        element = array->element;
    }
    return element ? element : 1;
}

// Converts the source or the target of a copy to fields of CUDA_MEMCPY3D. Returns false if a number
// overflows.
bool read_operand(const Operand &operand, size_t element, CUmemorytype &type, CUdeviceptr &address,
                  CUarray &array, size_t (&offset)[3], size_t &pitch, size_t &height) {
    if (operand.type == array_operand) {
        type = CU_MEMORYTYPE_ARRAY;
        array = operand.array.array;
        offset[1] = operand.array.y;
        offset[2] = operand.array.z;
        return !__builtin_mul_overflow(operand.array.x, element, &offset[0]);
    }
    type = CU_MEMORYTYPE_UNIFIED;
    address = operand.pointer.address;
    height = operand.pointer.layer;
    return !__builtin_mul_overflow(operand.pointer.row, element, &pitch);
}

CUresult read_copy(const Context &context, const BoxCopy &given, Copy &copy) {
    if (CUresult status = read_order(given.order, given.flags, copy))
        return status;
    if (!given.width || !given.height || !given.depth)
        return CUDA_ERROR_INVALID_VALUE;
    for (const Operand *operand : {&given.source, &given.target})
        if (operand->type != pointer_operand && operand->type != array_operand)
            return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D_v2 box = {};
    size_t element = element_of(given), from[3] = {}, to[3] = {};
    if (!element ||
        !read_operand(given.source, element, box.srcMemoryType, box.srcDevice, box.srcArray, from,
                      box.srcPitch, box.srcHeight) ||
        !read_operand(given.target, element, box.dstMemoryType, box.dstDevice, box.dstArray, to,
                      box.dstPitch, box.dstHeight) ||
        __builtin_mul_overflow(given.width, element, &box.WidthInBytes))
        return CUDA_ERROR_INVALID_VALUE;
    std::tie(box.srcXInBytes, box.srcY, box.srcZ) = std::tie(from[0], from[1], from[2]);
    std::tie(box.dstXInBytes, box.dstY, box.dstZ) = std::tie(to[0], to[1], to[2]);
    box.Height = given.height;
    box.Depth = given.depth;
    if (CUresult status = read_box(box, copy.transfer))
        return status;
    return check_access(context, copy.transfer.target, copy.transfer.source);
}

// Decides whether a copy reads its source in the call. With Order::Any both are allowed: `lazy`
// reads early, which exposes programs whose earlier work writes the source; `eager` reads late.
bool reads_now(Order order) {
    switch (state().settings.schedule) {
    case Schedule::Eager:
        return order == Order::DuringCall;
    case Schedule::Lazy:
        return order != Order::Stream;
    default:
        return order == Order::DuringCall ||
               (order == Order::Any && state().chooser.draw(explore::Choice::ReadsSource, 2));
    }
}

// Makes one operation of several. Nothing orders the copies of a batch: they run from the last one
// to the first or, under the random schedule, in a random order.
OperationPtr join(std::vector<OperationPtr> parts) {
    std::reverse(parts.begin(), parts.end());
    if (state().chooser.replays() && parts.size() > 1)
        state().chooser.limit(explore::Limit::ManyCopies);
    else if (state().settings.schedule >= Schedule::Random)
        for (size_t i = parts.size(); i > 1; i--)
            std::swap(parts[i - 1], parts[state().chooser.draw(explore::Choice::BatchOrder, i)]);
    auto all = std::make_shared<Operation>();
    for (const OperationPtr &part : parts) {
        all->reads.insert(all->reads.end(), part->reads.begin(), part->reads.end());
        all->writes.insert(all->writes.end(), part->writes.begin(), part->writes.end());
        all->waits.insert(all->waits.end(), part->waits.begin(), part->waits.end());
    }
    all->action = [parts = std::move(parts)] {
        for (const OperationPtr &part : parts)
            part->action();
    };
    return all;
}

bool of_graph(const Copy &copy) {
    return copy.transfer.target.of_graph || copy.transfer.source.of_graph;
}

Manner manner_of(const Copy &copy) {
    Manner manner = manner_of(copy.transfer);
    if (copy.order == Order::Stream || manner.promised)
        return manner;
    return {reads_now(copy.order), false, false};
}

// Returns how a copy in a batch accesses the host's memory. As on a real driver, a batch does not
// wait for a copy from a device into pageable memory, unless its source must be read in the call. A
// single copy waits.
Manner in_batch(const Copy &copy) {
    Manner manner = manner_of(copy);
    bool waits = copy.order == Order::DuringCall || copy.transfer.source.side == Side::Pageable;
    return waits ? manner : Manner{manner.snapshot, false, false};
}

// Under replay, the copies of a larger batch are one operation: the time and the memory of a search
// grow with the square of the number of streams.
constexpr size_t most_apart = 1000;

// Under replay, a search chooses when a copy with Order::Any reads its source: an operation of an
// internal stream does so.
bool reads_apart(const Copy &copy) {
    return copy.order == Order::Any && state().chooser.replays() &&
           !manner_of(copy.transfer).promised;
}

CUresult submit_reading(Stream &stream, const Copy &copy, OperationPtr &writing) {
    StreamPtr own = create_stream(stream.context, StreamKind::Created, CU_STREAM_NON_BLOCKING, 0);
    own->tag = stream.tag;
    return submit(*own, copy_in_two(copy.transfer, writing));
}

CUresult submit_copies(Call &call, Stream &stream, const Copies &copies, bool batch) {
    if (std::any_of(copies.begin(), copies.end(), of_graph))
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<OperationPtr> parts;
    bool blocks = false, promised = false;
    for (const Copy &copy : copies) {
        if (!copy.transfer.bytes())
            continue;
        if (copies.size() <= most_apart && reads_apart(copy)) {
            if (CUresult status = submit_reading(stream, copy, parts.emplace_back()))
                return status;
            continue;
        }
        Manner manner = batch ? in_batch(copy) : manner_of(copy);
        blocks |= manner.blocks;
        promised |= manner.promised;
        parts.push_back(copy_operation(copy.transfer, manner.snapshot));
    }
    if (parts.empty())
        return CUDA_SUCCESS;
    OperationPtr queued;
    // Under replay, a search chooses the order of the copies.
    bool apart = parts.size() > 1 && parts.size() <= most_apart && state().chooser.replays();
    CUresult status = apart ? submit_apart(stream, std::move(parts), &queued)
                            : submit(stream, join(std::move(parts)), &queued);
    if (status)
        return status;
    return blocks ? finish_copy(call, stream, queued, promised) : CUDA_SUCCESS;
}

CUresult find_stream(Call &call, CUstream handle, StreamPtr &stream) {
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (stream->kind == StreamKind::Legacy)
        return CUDA_ERROR_INVALID_VALUE;
    return refuse_captured(*stream);
}

// The arguments of cuMemcpyBatchAsync.
struct Batch {
    const CUdeviceptr *targets, *sources;
    const size_t *sizes;
    size_t count;
    const Attributes *attributes;
    const size_t *first_copies; // for each set of attributes, the index of its first copy
    size_t attribute_count;
};

CUresult read_orders(const Batch &batch, Copies &copies) {
    if (!batch.attributes || !batch.first_copies || !batch.attribute_count ||
        batch.attribute_count > batch.count || batch.first_copies[0])
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < batch.attribute_count; i++) {
        size_t begin = batch.first_copies[i];
        size_t end = i + 1 < batch.attribute_count ? batch.first_copies[i + 1] : batch.count;
        if (begin >= end || end > batch.count)
            return CUDA_ERROR_INVALID_VALUE;
        const Attributes &given = batch.attributes[i];
        for (size_t copy = begin; copy < end; copy++)
            if (CUresult status = read_order(given.order, given.flags, copies[copy]))
                return status;
    }
    return CUDA_SUCCESS;
}

// `failed` becomes the index of the copy that is invalid.
CUresult copy_batch(Call &call, const Batch &batch, size_t &failed, CUstream handle) {
    StreamPtr stream;
    if (CUresult status = find_stream(call, handle, stream))
        return status;
    if (!batch.targets || !batch.sources || !batch.sizes || !batch.count)
        return CUDA_ERROR_INVALID_VALUE;
    Copies copies(batch.count);
    if (CUresult status = read_orders(batch, copies))
        return status;
    for (size_t i = 0; i < batch.count; i++)
        if (CUresult status = read_row(accessing(call, *stream), batch.targets[i], batch.sources[i],
                                       batch.sizes[i], copies[i].transfer)) {
            failed = i;
            return status;
        }
    return submit_copies(call, *stream, copies, true);
}

CUresult copy_boxes(Call &call, const BoxCopy *boxes, size_t count, size_t &failed,
                    unsigned long long flags, CUstream handle) {
    StreamPtr stream;
    if (CUresult status = find_stream(call, handle, stream))
        return status;
    if (!boxes || !count || flags)
        return CUDA_ERROR_INVALID_VALUE;
    Copies copies(count);
    for (size_t i = 0; i < count; i++)
        if (CUresult status = read_copy(accessing(call, *stream), boxes[i], copies[i])) {
            failed = i;
            return status;
        }
    return submit_copies(call, *stream, copies, true);
}

// Submits a single copy. Unlike a batch, it can be captured, and can be in the legacy stream.
CUresult copy_one(Call &call, Stream &stream, const Copy &copy) {
    if (stream.capture && copy.transfer.bytes())
        return transfer_later(call, stream, copy.transfer);
    return submit_copies(call, stream, {copy}, false);
}

// The first versions of the functions for batches say which copy is invalid.
template <class Run> CUresult tell_failed(size_t *told, Run run) {
    size_t failed = whole_batch;
    CUresult status = run(failed);
    if (status && told)
        *told = failed;
    return status;
}

} // namespace

SOFT_STREAM_API(cuMemcpyBatchAsync_v2,
                (CUdeviceptr * targets, CUdeviceptr *sources, size_t *sizes, size_t count,
                 CUmemcpyAttributes *attributes, size_t *first_copies, size_t attribute_count,
                 CUstream stream),
                (targets, sources, sizes, count, attributes, first_copies, attribute_count,
                 stream)) {
    size_t failed;
    auto given = reinterpret_cast<const Attributes *>(attributes);
    return copy_batch(call, {targets, sources, sizes, count, given, first_copies, attribute_count},
                      failed, stream);
}

SOFT_STREAM_API(cuMemcpyBatchAsync,
                (CUdeviceptr * targets, CUdeviceptr *sources, size_t *sizes, size_t count,
                 CUmemcpyAttributes *attributes, size_t *first_copies, size_t attribute_count,
                 size_t *told, CUstream stream),
                (targets, sources, sizes, count, attributes, first_copies, attribute_count, told,
                 stream)) {
    auto given = reinterpret_cast<const Attributes *>(attributes);
    Batch batch{targets, sources, sizes, count, given, first_copies, attribute_count};
    return tell_failed(told,
                       [&](size_t &failed) { return copy_batch(call, batch, failed, stream); });
}

SOFT_STREAM_API(cuMemcpy3DBatchAsync_v2,
                (size_t count, CUDA_MEMCPY3D_BATCH_OP *boxes, unsigned long long flags,
                 CUstream stream),
                (count, boxes, flags, stream)) {
    size_t failed;
    return copy_boxes(call, reinterpret_cast<const BoxCopy *>(boxes), count, failed, flags, stream);
}

SOFT_STREAM_API(cuMemcpy3DBatchAsync,
                (size_t count, CUDA_MEMCPY3D_BATCH_OP *boxes, size_t *told,
                 unsigned long long flags, CUstream stream),
                (count, boxes, told, flags, stream)) {
    auto given = reinterpret_cast<const BoxCopy *>(boxes);
    return tell_failed(told, [&](size_t &failed) {
        return copy_boxes(call, given, count, failed, flags, stream);
    });
}

SOFT_STREAM_API(cuMemcpyWithAttributesAsync,
                (CUdeviceptr target, CUdeviceptr source, size_t bytes,
                 CUmemcpyAttributes *attributes, CUstream handle),
                (target, source, bytes, attributes, handle)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    auto given = reinterpret_cast<const Attributes *>(attributes);
    if (!given)
        return CUDA_ERROR_INVALID_VALUE;
    Copy copy;
    if (CUresult status = read_order(given->order, given->flags, copy))
        return status;
    if (CUresult status = read_row(accessing(call, *stream), target, source, bytes, copy.transfer))
        return status;
    return copy_one(call, *stream, copy);
}

SOFT_STREAM_API(cuMemcpy3DWithAttributesAsync,
                (CUDA_MEMCPY3D_BATCH_OP * box, unsigned long long flags, CUstream handle),
                (box, flags, handle)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (!box || flags)
        return CUDA_ERROR_INVALID_VALUE;
    Copy copy;
    if (CUresult status =
            read_copy(accessing(call, *stream), *reinterpret_cast<const BoxCopy *>(box), copy))
        return status;
    return copy_one(call, *stream, copy);
}

} // namespace soft
