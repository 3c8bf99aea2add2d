#include "stream/fill.h"

#include "api/call.h"
#include "api/state.h"
#include "base/undefined.h"
#include "graph/works.h"

#include <algorithm>

namespace soft {
namespace {

using Fill = CUDA_MEMSET_NODE_PARAMS;

bool fits(const Fill &fill, size_t &bytes) {
    size_t row, above;
    if (__builtin_mul_overflow(fill.width, size_t(fill.elementSize), &row) ||
        __builtin_mul_overflow(fill.pitch, fill.height - 1, &above) ||
        __builtin_add_overflow(above, row, &bytes))
        return false;
    bool aligned = fill.dst % fill.elementSize == 0 &&
                   (fill.height == 1 || fill.pitch % fill.elementSize == 0);
    return aligned && (fill.height == 1 || fill.pitch >= row);
}

template <class Word> void fill_rows(const Fill &fill, char *target) {
    for (size_t row = 0; row < fill.height; row++)
        std::fill_n(reinterpret_cast<Word *>(target + row * fill.pitch), fill.width,
                    static_cast<Word>(fill.value));
}

} // namespace

OperationPtr fill_operation(const Fill &fill, char *address) {
    auto operation = std::make_shared<Operation>();
    operation->writes.push_back({fill.dst, fill.width * fill.elementSize, fill.pitch, fill.height});
    operation->action = [=] {
        if (fill.elementSize == 1)
            fill_rows<uint8_t>(fill, address);
        else if (fill.elementSize == 2)
            fill_rows<uint16_t>(fill, address);
        else
            fill_rows<uint32_t>(fill, address);
        for (size_t row = 0; row < fill.height; row++)
            undefined_memory().define(fill.dst + row * fill.pitch, fill.width * fill.elementSize);
    };
    return operation;
}

CUresult check_fill(const Fill &fill, const Context &context, char *&address,
                    const Allocation **memory) {
    size_t bytes;
    if (!fits(fill, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    const Allocation *allocation = find_range(fill.dst, bytes);
    if (!allocation || !reaches(context, *allocation, fill.dst, bytes, true))
        return CUDA_ERROR_INVALID_VALUE;
    if (memory)
        *memory = allocation;
    address = host_address(*allocation, fill.dst);
    return CUDA_SUCCESS;
}

namespace {

CUresult submit_fill(Stream &stream, const Fill &fill, bool &device, OperationPtr &queued) {
    if (!fill.width || !fill.height)
        return CUDA_SUCCESS;
    char *address = nullptr;
    const Allocation *memory = nullptr;
    if (CUresult status = check_fill(fill, *stream.owner, address, &memory))
        return status;
    if (stream.capture)
        return capture_node(stream, captured_fill_work(fill, stream.context));
    if (memory->captured) // a graph will allocate it
        return CUDA_ERROR_INVALID_VALUE;
    device = memory->on_device() && !memory->sync_memops;
    return submit(stream, fill_operation(fill, address), &queued);
}

// Submits a synchronous fill. Does not wait until a fill of device memory is done, because the host
// cannot see the difference.
CUresult fill_now(Call &call, const Fill &fill) {
    StreamPtr stream = default_stream(*call.thread, call.context, call.per_thread);
    if (CUresult status = refuse_captured(*stream))
        return status;
    bool device = true;
    OperationPtr queued;
    if (CUresult status = submit_fill(*stream, fill, device, queued))
        return status;
    if (device || !queued)
        return CUDA_SUCCESS;
    state().scheduler.finish(call.lock, {queued});
    state().races.learn({queued});
    return context_status(call.context.get());
}

CUresult fill_later(Call &call, CUstream handle, const Fill &fill) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    bool device;
    OperationPtr queued;
    return submit_fill(*stream, fill, device, queued);
}

} // namespace

#define SOFT_FILL_API(bits, word)                                                                  \
    SOFT_DEFAULT_API(cuMemsetD##bits##_v2, (CUdeviceptr address, word value, size_t count),        \
                     (address, value, count)) {                                                    \
        return fill_now(call, Fill{address, 0, value, bits / 8, count, 1});                        \
    }                                                                                              \
    SOFT_STREAM_API(cuMemsetD##bits##Async,                                                        \
                    (CUdeviceptr address, word value, size_t count, CUstream stream),              \
                    (address, value, count, stream)) {                                             \
        return fill_later(call, stream, Fill{address, 0, value, bits / 8, count, 1});              \
    }                                                                                              \
    SOFT_DEFAULT_API(cuMemsetD2D##bits##_v2,                                                       \
                     (CUdeviceptr address, size_t pitch, word value, size_t width, size_t height), \
                     (address, pitch, value, width, height)) {                                     \
        return fill_now(call, Fill{address, pitch, value, bits / 8, width, height});               \
    }                                                                                              \
    SOFT_STREAM_API(cuMemsetD2D##bits##Async,                                                      \
                    (CUdeviceptr address, size_t pitch, word value, size_t width, size_t height,   \
                     CUstream stream),                                                             \
                    (address, pitch, value, width, height, stream)) {                              \
        return fill_later(call, stream, Fill{address, pitch, value, bits / 8, width, height});     \
    }

SOFT_FILL_API(8, unsigned char)
SOFT_FILL_API(16, unsigned short)
SOFT_FILL_API(32, unsigned)

} // namespace soft
