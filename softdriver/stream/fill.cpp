#include "api/call.h"
#include "api/state.h"

#include <algorithm>

namespace soft {
namespace {

template <class Word> struct Fill {
    CUdeviceptr address;
    size_t pitch; // distance from row to row, in bytes
    Word value;
    size_t width; // width of a row, in words
    size_t height;
};

template <class Word> bool fits(const Fill<Word> &fill, size_t &bytes) {
    size_t row, above;
    if (__builtin_mul_overflow(fill.width, sizeof(Word), &row) ||
        __builtin_mul_overflow(fill.pitch, fill.height - 1, &above) ||
        __builtin_add_overflow(above, row, &bytes))
        return false;
    bool aligned = fill.address % sizeof(Word) == 0 && fill.pitch % sizeof(Word) == 0;
    return aligned && (fill.height == 1 || fill.pitch >= row);
}

template <class Word> OperationPtr fill_operation(const Fill<Word> &fill, char *target) {
    auto operation = std::make_shared<Operation>();
    operation->writes.push_back({fill.address, fill.width * sizeof(Word), fill.pitch, fill.height});
    operation->action = [=] {
        for (size_t row = 0; row < fill.height; row++)
            std::fill_n(reinterpret_cast<Word *>(target + row * fill.pitch), fill.width,
                        fill.value);
    };
    return operation;
}

template <class Word>
CUresult submit_fill(Stream &stream, const Fill<Word> &fill, bool &device, OperationPtr &queued) {
    if (!fill.width || !fill.height)
        return CUDA_SUCCESS;
    size_t bytes;
    if (!fits(fill, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    const Allocation *allocation = find_range(fill.address, bytes);
    if (!allocation || !reaches(*stream.owner, *allocation))
        return CUDA_ERROR_INVALID_VALUE;
    device = allocation->on_device() && !allocation->sync_memops;
    char *target = host_address(*allocation, fill.address);
    return submit(stream, fill_operation(fill, target), &queued);
}

// Submits a synchronous fill. Does not wait until a fill of device memory is done, because the host
// cannot see the difference.
template <class Word> CUresult fill_now(Call &call, const Fill<Word> &fill) {
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

template <class Word> CUresult fill_later(Call &call, CUstream handle, const Fill<Word> &fill) {
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
        return fill_now(call, Fill<word>{address, 0, value, count, 1});                            \
    }                                                                                              \
    SOFT_STREAM_API(cuMemsetD##bits##Async,                                                        \
                    (CUdeviceptr address, word value, size_t count, CUstream stream),              \
                    (address, value, count, stream)) {                                             \
        return fill_later(call, stream, Fill<word>{address, 0, value, count, 1});                  \
    }                                                                                              \
    SOFT_DEFAULT_API(cuMemsetD2D##bits##_v2,                                                       \
                     (CUdeviceptr address, size_t pitch, word value, size_t width, size_t height), \
                     (address, pitch, value, width, height)) {                                     \
        return fill_now(call, Fill<word>{address, pitch, value, width, height});                   \
    }                                                                                              \
    SOFT_STREAM_API(cuMemsetD2D##bits##Async,                                                      \
                    (CUdeviceptr address, size_t pitch, word value, size_t width, size_t height,   \
                     CUstream stream),                                                             \
                    (address, pitch, value, width, height, stream)) {                              \
        return fill_later(call, stream, Fill<word>{address, pitch, value, width, height});         \
    }

SOFT_FILL_API(8, unsigned char)
SOFT_FILL_API(16, unsigned short)
SOFT_FILL_API(32, unsigned)

} // namespace soft
