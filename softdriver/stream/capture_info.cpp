#include "api/call.h"
#include "api/state.h"

#include <cstring>

// This file implements the functions that return the state of captures.

namespace soft {
namespace {

CUstreamCaptureStatus capture_status(const Stream &stream) {
    if (!stream.capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream.capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                 : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

CUresult capture_info(Call &call, CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id) {
    StreamPtr stream;
    if (CUresult problem = resolve_stream(call, handle, stream))
        return problem;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->kind == StreamKind::Legacy)
        for (const auto &capture : state().captures)
            for (const auto &captured : capture->streams)
                if (captured->owner == stream->owner && captured->blocking())
                    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = capture_status(*stream);
    if (id && stream->capture)
        *id = stream->capture->id;
    return CUDA_SUCCESS;
}

} // namespace

SOFT_STREAM_API(cuStreamIsCapturing, (CUstream handle, CUstreamCaptureStatus *status),
                (handle, status)) {
    return capture_info(call, handle, status, nullptr);
}

SOFT_STREAM_API(cuStreamGetCaptureInfo,
                (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id),
                (handle, status, id)) {
    return capture_info(call, handle, status, id);
}

SOFT_STREAM_API(cuStreamGetCaptureInfo_v3,
                (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                 const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count),
                (handle, status, id, graph, dependencies, edges, count)) {
    if (edges && !dependencies)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult problem = capture_info(call, handle, status, id))
        return problem;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    StreamPtr stream;
    if (CUresult problem = resolve_stream(call, handle, stream))
        return problem;
    show_tail(*stream);
    if (graph)
        *graph = stream->capture->graph->handle;
    if (dependencies)
        *dependencies = stream->shown_tail.data();
    if (edges)
        *edges = reinterpret_cast<const CUgraphEdgeData *>(stream->shown_edges.data());
    if (count)
        *count = stream->shown_tail.size();
    return CUDA_SUCCESS;
}

SOFT_STREAM_API(cuStreamGetCaptureInfo_v2,
                (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                 const CUgraphNode **dependencies, size_t *count),
                (handle, status, id, graph, dependencies, count)) {
    return cuStreamGetCaptureInfo_v3_body(call, handle, status, id, graph, dependencies, nullptr,
                                          count);
}

// Accepts any number as a mode. A number that is no mode forbids nothing.
SOFT_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode)) {
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    int previous = call.thread->capture_mode;
    std::memcpy(&call.thread->capture_mode, mode, sizeof(previous));
    std::memcpy(mode, &previous, sizeof(previous));
    return CUDA_SUCCESS;
}

} // namespace soft
