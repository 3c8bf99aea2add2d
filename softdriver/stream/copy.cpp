#include "api/call.h"
#include "stream/capture.h"
#include "stream/transfer.h"

// This file implements copies of contiguous bytes: cuMemcpy, cuMemcpyHtoD and so on.

namespace soft {
namespace {

// Both ends of a copy. If `status` is not CUDA_SUCCESS, it is the first error that occurred while
// they were located, and the ends are not valid.
struct Ends {
    CUresult status;
    End target, source;
};

Transfer one_row(const Ends &ends, size_t bytes) {
    return {Place{ends.target}, Place{ends.source}, bytes};
}

Ends host_to_device(CUdeviceptr target, const void *source, size_t bytes) {
    Ends ends;
    ends.status = locate_device(target, bytes, ends.target);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_host(source, bytes, ends.source);
    return ends;
}

Ends device_to_host(void *target, CUdeviceptr source, size_t bytes) {
    Ends ends;
    ends.status = locate_device(source, bytes, ends.source);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_host(target, bytes, ends.target);
    return ends;
}

Ends device_to_device(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    Ends ends;
    ends.status = locate_device(source, bytes, ends.source);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_device(target, bytes, ends.target);
    return ends;
}

Ends any_to_any(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    Ends ends;
    ends.status = locate_any(source, bytes, ends.source);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_any(target, bytes, ends.target);
    return ends;
}

// Locates both ends, and checks that the context has access to the memory pools they are in.
template <class Locate, class Target, class Source>
Ends allowed(const Context &context, Locate locate, Target target, Source source, size_t bytes) {
    Ends ends = locate(target, source, bytes);
    if (ends.status == CUDA_SUCCESS)
        ends.status = check_access(context, ends.target, ends.source);
    return ends;
}

template <class Locate, class Target, class Source>
CUresult now(Call &call, Locate locate, Target target, Source source, size_t bytes) {
    if (CUresult status = call.per_thread ? CUDA_SUCCESS : refuse_implicit(*call.context))
        return status;
    if (!bytes)
        return CUDA_SUCCESS;
    Ends ends = allowed(*call.context, locate, target, source, bytes);
    return ends.status ? ends.status : transfer_now(call, one_row(ends, bytes));
}

template <class Locate, class Target, class Source>
CUresult later(Call &call, CUstream handle, Locate locate, Target target, Source source,
               size_t bytes) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (!bytes)
        return CUDA_SUCCESS;
    Ends ends = allowed(*stream->owner, locate, target, source, bytes);
    return ends.status ? ends.status : transfer_later(call, *stream, one_row(ends, bytes));
}

} // namespace

SOFT_DEFAULT_API(cuMemcpy, (CUdeviceptr target, CUdeviceptr source, size_t bytes),
                 (target, source, bytes)) {
    return now(call, any_to_any, target, source, bytes);
}

SOFT_DEFAULT_API(cuMemcpyHtoD_v2, (CUdeviceptr target, const void *source, size_t bytes),
                 (target, source, bytes)) {
    return now(call, host_to_device, target, source, bytes);
}

SOFT_DEFAULT_API(cuMemcpyDtoH_v2, (void *target, CUdeviceptr source, size_t bytes),
                 (target, source, bytes)) {
    return now(call, device_to_host, target, source, bytes);
}

SOFT_DEFAULT_API(cuMemcpyDtoD_v2, (CUdeviceptr target, CUdeviceptr source, size_t bytes),
                 (target, source, bytes)) {
    return now(call, device_to_device, target, source, bytes);
}

SOFT_STREAM_API(cuMemcpyAsync,
                (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream),
                (target, source, bytes, stream)) {
    return later(call, stream, any_to_any, target, source, bytes);
}

SOFT_STREAM_API(cuMemcpyHtoDAsync_v2,
                (CUdeviceptr target, const void *source, size_t bytes, CUstream stream),
                (target, source, bytes, stream)) {
    return later(call, stream, host_to_device, target, source, bytes);
}

SOFT_STREAM_API(cuMemcpyDtoHAsync_v2,
                (void *target, CUdeviceptr source, size_t bytes, CUstream stream),
                (target, source, bytes, stream)) {
    return later(call, stream, device_to_host, target, source, bytes);
}

SOFT_STREAM_API(cuMemcpyDtoDAsync_v2,
                (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream),
                (target, source, bytes, stream)) {
    return later(call, stream, device_to_device, target, source, bytes);
}

} // namespace soft
