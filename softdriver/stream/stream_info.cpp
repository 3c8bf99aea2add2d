#include "api/call.h"
#include "api/state.h"
#include "stream/green.h"

// This file implements the functions that return properties of a stream.

namespace soft {
namespace {

template <class Value, class Read>
CUresult read_stream(Call &call, CUstream handle, Value *value, Read read) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->kind == StreamKind::Legacy)
        if (CUresult status = refuse_implicit(*stream->owner))
            return status;
    *value = read(*stream);
    return CUDA_SUCCESS;
}

// Like read_stream(), but returns an error if the stream is being captured.
template <class Value, class Read>
CUresult read_idle_stream(Call &call, CUstream handle, Value *value, Read read) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (CUresult status = value ? refuse_captured(*stream) : CUDA_SUCCESS)
        return status;
    return read_stream(call, handle, value, read);
}

} // namespace

SOFT_STREAM_API(cuStreamGetFlags, (CUstream handle, unsigned *flags), (handle, flags)) {
    return read_idle_stream(call, handle, flags, [](Stream &stream) { return stream.flags; });
}

SOFT_STREAM_API(cuStreamGetPriority, (CUstream handle, int *priority), (handle, priority)) {
    return read_stream(call, handle, priority, [](Stream &stream) { return stream.priority; });
}

SOFT_STREAM_API(cuStreamGetId, (CUstream handle, unsigned long long *id), (handle, id)) {
    return read_idle_stream(call, handle, id, [](Stream &stream) { return stream.id; });
}

SOFT_STREAM_API(cuStreamGetCtx, (CUstream handle, CUcontext *context), (handle, context)) {
    return read_stream(call, handle, context, [](Stream &stream) {
        GreenPtr green = green_of(stream);
        return green ? green->context_handle : stream.owner->handle;
    });
}

SOFT_STREAM_API(cuStreamGetCtx_v2, (CUstream handle, CUcontext *context, CUgreenCtx *green),
                (handle, context, green)) {
    if (CUresult status = cuStreamGetCtx_body(call, handle, context))
        return status;
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    GreenPtr found = green_of(*stream);
    if (found)
        *context = stream->owner->handle;
    if (green)
        *green = found ? found->handle : nullptr;
    return CUDA_SUCCESS;
}

SOFT_STREAM_API(cuStreamGetDevice, (CUstream handle, CUdevice *device), (handle, device)) {
    return read_stream(call, handle, device,
                       [](Stream &stream) { return stream.owner->device->ordinal; });
}

} // namespace soft
