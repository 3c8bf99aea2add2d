#include "api/call.h"
#include "stream/capture.h"
#include "stream/transfer.h"

// This file implements peer copies of one row. They need no peer access, because all devices share
// one address space.

namespace soft {
namespace {

CUresult peer_row(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                  CUcontext source_context, size_t bytes, Transfer &transfer) {
    if (CUresult status = check_named(source_context))
        return status;
    if (CUresult status = check_named(target_context))
        return status;
    transfer.width = bytes;
    if (!bytes)
        return CUDA_SUCCESS;
    if (CUresult status = locate_device(source, bytes, transfer.source))
        return status;
    return locate_device(target, bytes, transfer.target);
}

} // namespace

SOFT_DEFAULT_API(cuMemcpyPeer,
                 (CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                  CUcontext source_context, size_t bytes),
                 (target, target_context, source, source_context, bytes)) {
    Transfer transfer{};
    if (CUresult status = peer_row(target, target_context, source, source_context, bytes, transfer))
        return status;
    return bytes ? transfer_now(call, transfer) : CUDA_SUCCESS;
}

SOFT_STREAM_API(cuMemcpyPeerAsync,
                (CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                 CUcontext source_context, size_t bytes, CUstream handle),
                (target, target_context, source, source_context, bytes, handle)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (CUresult status = stream->capture ? refuse_captured(*stream) : CUDA_SUCCESS)
        return status;
    Transfer transfer{};
    if (CUresult status = peer_row(target, target_context, source, source_context, bytes, transfer))
        return status;
    return bytes ? transfer_later(call, *stream, transfer) : CUDA_SUCCESS;
}

} // namespace soft
