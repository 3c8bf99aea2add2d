#include "api/call.h"
#include "stream/capture.h"
#include "stream/transfer.h"

// This file implements copies of contiguous bytes, also of rows of arrays: cuMemcpy, cuMemcpyHtoD,
// cuMemcpyHtoA and so on.

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

// A position in the first row of an array. The offset is in bytes.
struct ArrayStart {
    CUarray array;
    size_t offset;
};

// `whole` says that the bytes must be whole elements.
CUresult locate_start(const ArrayStart &start, size_t bytes, bool whole, End &end) {
    ArrayPtr array = find_array(start.array);
    if (!array || start.offset > array->row_bytes() || bytes > array->row_bytes() - start.offset)
        return CUDA_ERROR_INVALID_VALUE;
    if (whole && (start.offset % array->element || bytes % array->element))
        return CUDA_ERROR_INVALID_VALUE;
    return locate_array(start.array, start.offset, 0, 0, end);
}

Ends host_to_array(ArrayStart target, const void *source, size_t bytes) {
    Ends ends;
    ends.status = locate_start(target, bytes, false, ends.target);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_host(source, bytes, ends.source);
    return ends;
}

Ends array_to_host(void *target, ArrayStart source, size_t bytes) {
    Ends ends;
    ends.status = locate_start(source, bytes, false, ends.source);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_host(target, bytes, ends.target);
    return ends;
}

Ends device_to_array(ArrayStart target, CUdeviceptr source, size_t bytes) {
    Ends ends;
    ends.status = locate_device(source, bytes, ends.source);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_start(target, bytes, true, ends.target);
    return ends;
}

Ends array_to_device(CUdeviceptr target, ArrayStart source, size_t bytes) {
    Ends ends;
    ends.status = locate_start(source, bytes, true, ends.source);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_device(target, bytes, ends.target);
    return ends;
}

Ends array_to_array(ArrayStart target, ArrayStart source, size_t bytes) {
    Ends ends;
    ends.status = locate_start(source, bytes, true, ends.source);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_start(target, bytes, true, ends.target);
    if (ends.status == CUDA_SUCCESS && ends.source.array->element != ends.target.array->element)
        ends.status = CUDA_ERROR_INVALID_VALUE;
    return ends;
}

// Locates both ends, and checks that the context has access to the pools and the reserved addresses
// in which they are.
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
    Ends ends = allowed(accessing(call, *stream), locate, target, source, bytes);
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

SOFT_DEFAULT_API(cuMemcpyHtoA_v2, (CUarray target, size_t offset, const void *source, size_t bytes),
                 (target, offset, source, bytes)) {
    return now(call, host_to_array, ArrayStart{target, offset}, source, bytes);
}

SOFT_DEFAULT_API(cuMemcpyAtoH_v2, (void *target, CUarray source, size_t offset, size_t bytes),
                 (target, source, offset, bytes)) {
    return now(call, array_to_host, target, ArrayStart{source, offset}, bytes);
}

SOFT_DEFAULT_API(cuMemcpyDtoA_v2, (CUarray target, size_t offset, CUdeviceptr source, size_t bytes),
                 (target, offset, source, bytes)) {
    return now(call, device_to_array, ArrayStart{target, offset}, source, bytes);
}

SOFT_DEFAULT_API(cuMemcpyAtoD_v2, (CUdeviceptr target, CUarray source, size_t offset, size_t bytes),
                 (target, source, offset, bytes)) {
    return now(call, array_to_device, target, ArrayStart{source, offset}, bytes);
}

SOFT_DEFAULT_API(cuMemcpyAtoA_v2,
                 (CUarray target, size_t offset, CUarray source, size_t begin, size_t bytes),
                 (target, offset, source, begin, bytes)) {
    return now(call, array_to_array, ArrayStart{target, offset}, ArrayStart{source, begin}, bytes);
}

SOFT_STREAM_API(cuMemcpyHtoAAsync_v2,
                (CUarray target, size_t offset, const void *source, size_t bytes, CUstream stream),
                (target, offset, source, bytes, stream)) {
    return later(call, stream, host_to_array, ArrayStart{target, offset}, source, bytes);
}

SOFT_STREAM_API(cuMemcpyAtoHAsync_v2,
                (void *target, CUarray source, size_t offset, size_t bytes, CUstream stream),
                (target, source, offset, bytes, stream)) {
    return later(call, stream, array_to_host, target, ArrayStart{source, offset}, bytes);
}

} // namespace soft
