#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"

#include <algorithm>

// This file implements cuStreamUpdateCaptureDependencies.

namespace soft {
namespace {

bool all_zero(const CUgraphEdgeData *edges, size_t count) {
    auto *bytes = reinterpret_cast<const unsigned char *>(edges);
    return !edges ||
           std::all_of(bytes, bytes + count * edge_bytes, [](auto byte) { return byte == 0; });
}

CUresult update(Call &call, CUstream handle, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                size_t count, unsigned flags) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    Capture &capture = *stream->capture;
    if (!capture.valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    std::set<uint64_t> tail;
    for (size_t i = 0; i < count; i++) {
        GraphNodePtr node = find_node(nodes[i]);
        if (!node || node->graph != capture.graph.get())
            return CUDA_ERROR_INVALID_VALUE;
        tail.insert(node->id);
    }
    if (!all_zero(edges, count))
        return not_supported("edges with data (a port or a type) as dependencies of a capture");
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        std::swap(tail, stream->capture_tail);
    for (uint64_t node : tail)
        if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
            capture.excused.insert(node);
        else
            stream->capture_tail.insert(node);
    return CUDA_SUCCESS;
}

} // namespace

void show_tail(Stream &stream) {
    stream.shown_tail.clear();
    for (uint64_t id : stream.capture_tail)
        if (GraphNodePtr node = stream.capture->graph->find(id))
            stream.shown_tail.push_back(handle_of(*node));
    stream.shown_edges.assign(stream.shown_tail.size(), 0);
}

SOFT_STREAM_API(cuStreamUpdateCaptureDependencies,
                (CUstream handle, CUgraphNode *nodes, size_t count, unsigned flags),
                (handle, nodes, count, flags)) {
    return update(call, handle, nodes, nullptr, count, flags);
}

SOFT_STREAM_API(cuStreamUpdateCaptureDependencies_v2,
                (CUstream handle, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
                 unsigned flags),
                (handle, nodes, edges, count, flags)) {
    return update(call, handle, nodes, edges, count, flags);
}

} // namespace soft
