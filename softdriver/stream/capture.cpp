#include "api/call.h"
#include "api/state.h"
#include "graph/node_api.h"

#include <algorithm>

// This file implements stream capture. Operations of captured streams do not run, but become nodes
// of a graph.

namespace soft {
namespace {

// Returns true if the origin stream depends, directly or through other nodes, on every node of the
// capture. Nodes in `excused`, and the nodes on which they depend, do not count.
bool joined(const Capture &capture) {
    std::set<uint64_t> reached;
    std::vector<uint64_t> todo(capture.origin->capture_tail.begin(),
                               capture.origin->capture_tail.end());
    todo.insert(todo.end(), capture.excused.begin(), capture.excused.end());
    while (!todo.empty()) {
        uint64_t id = todo.back();
        todo.pop_back();
        GraphNodePtr node = capture.graph->find(id);
        if (node && reached.insert(id).second)
            for (const Edge &edge : node->after)
                todo.push_back(edge.from);
    }
    const auto &nodes = capture.graph->nodes;
    return std::all_of(nodes.lower_bound(capture.first), nodes.end(),
                       [&](const auto &entry) { return reached.count(entry.first) > 0; });
}

void join(Stream &stream, const CapturePtr &capture) {
    if (!stream.capture) {
        stream.capture = capture;
        capture->streams.push_back(stream.shared_from_this());
    }
}

// Returns true if the capture forbids this thread to make calls that might synchronize implicitly.
bool protects_itself(const Capture &capture, const ThreadState &thread) {
    bool own = capture.thread == &thread && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    switch (thread.capture_mode) {
    case CU_STREAM_CAPTURE_MODE_GLOBAL:
        return own || capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL:
        return own;
    default:
        return false;
    }
}

} // namespace

void invalidate(Capture &capture) { capture.valid = false; }

bool end_capture(Capture &capture) {
    bool complete = joined(capture);
    std::vector<StreamPtr> streams = std::move(capture.streams);
    for (const auto &stream : streams) {
        stream->capture_tail.clear();
        if (stream->destroyed)
            state().streams.erase(reinterpret_cast<uintptr_t>(stream->handle));
    }
    capture.live = false;
    capture.graph->capture = nullptr;
    capture.origin = nullptr;
    auto &captures = state().captures;
    captures.erase(std::find_if(captures.begin(), captures.end(),
                                [&](auto &other) { return other.get() == &capture; }));
    // Do not use the capture after this loop, which may drop the last references to it.
    for (const auto &stream : streams)
        stream->capture = nullptr;
    return complete;
}

void abandon_capture(Capture &capture) {
    end_capture(capture);
    discard_graph(capture);
}

void discard_graph(Capture &capture) {
    if (capture.own_graph)
        erase_handles(*capture.graph);
}

// Destroys the graph of a capture that failed. Real drivers do this even if the program has created
// the graph. A graph inside a node stays in the node, but loses its handle.
static void destroy_graph(Capture &capture) {
    capture.graph->destroyed = capture.graph->inside;
    erase_handles(*capture.graph);
}

CUresult capture_node(Stream &stream, NodeWorkPtr work, bool programmatic) {
    Capture &capture = *stream.capture;
    if (!capture.valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    std::vector<Edge> after;
    for (uint64_t id : stream.capture_tail) {
        GraphNodePtr node = capture.graph->find(id);
        bool early = programmatic && node && node->work->type() == CU_GRAPH_NODE_TYPE_KERNEL;
        after.push_back({id, early ? programmatic_edge : EdgeData{}});
    }
    GraphNodePtr node = add_node(*capture.graph, std::move(work), std::move(after));
    stream.capture_tail = {node->id};
    return CUDA_SUCCESS;
}

CUresult refuse_captured(Stream &stream) {
    if (stream.kind == StreamKind::Legacy)
        return refuse_implicit(*stream.owner);
    if (!stream.capture)
        return CUDA_SUCCESS;
    invalidate(*stream.capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool involves(const Capture &capture, const Context &context) {
    return std::any_of(capture.streams.begin(), capture.streams.end(),
                       [&](const auto &stream) { return stream->owner == &context; });
}

CUresult refuse_captured(const Context &context) {
    CUresult status = CUDA_SUCCESS;
    for (const auto &capture : state().captures)
        if (involves(*capture, context)) {
            invalidate(*capture);
            status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return status;
}

CUresult refuse_unsafe(const ThreadState &thread) {
    CUresult status = CUDA_SUCCESS;
    for (const auto &capture : state().captures)
        if (protects_itself(*capture, thread)) {
            invalidate(*capture);
            status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return status;
}

CUresult refuse_implicit(const Context &context) {
    CUresult status = CUDA_SUCCESS;
    for (const auto &capture : state().captures)
        for (const auto &stream : capture->streams)
            if (stream->owner == &context && stream->blocking()) {
                invalidate(*capture);
                status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            }
    return status;
}

CUresult capture_record(Stream &stream, Event &event) {
    if (!stream.capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event.capture = stream.capture;
    event.capture_tail = stream.capture_tail;
    event.recorded = nullptr;
    return CUDA_SUCCESS;
}

// Makes a stream wait for an event. The stream is being captured, or the event was recorded in a
// capture.
CUresult capture_wait(Stream &stream, const Event &event) {
    if (stream.capture && !stream.capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!event.capture) {
        if (!event.recorded)
            return CUDA_SUCCESS;
        invalidate(*stream.capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    Capture &capture = *event.capture;
    if (!capture.live) {
        if (stream.capture)
            invalidate(*stream.capture);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!capture.valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream.kind == StreamKind::Legacy) {
        invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream.capture && stream.capture != event.capture) {
        invalidate(capture);
        invalidate(*stream.capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    join(stream, event.capture);
    stream.capture_tail.insert(event.capture_tail.begin(), event.capture_tail.end());
    return CUDA_SUCCESS;
}

CUresult refuse_captured(Event &event) {
    if (!event.capture)
        return CUDA_SUCCESS;
    if (!event.capture->live || !event.capture->valid)
        return CUDA_ERROR_INVALID_VALUE;
    invalidate(*event.capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

// A result argument for find_place(), which refuses a null pointer. A capture returns no node.
static constexpr CUgraphNode no_node = nullptr;

// Begins a capture that adds nodes to the graph.
static Capture &begin_capture(Stream &stream, CUstreamCaptureMode mode, const ThreadState &thread,
                              GraphPtr graph) {
    auto capture = std::make_shared<Capture>();
    capture->id = state().new_id();
    capture->mode = mode;
    capture->thread = &thread;
    capture->origin = &stream;
    join(stream, capture);
    capture->graph = std::move(graph);
    capture->graph->capture = capture.get();
    capture->first = state().next_id;
    handle_of(*capture->graph);
    state().captures.push_back(capture);
    return *capture;
}

SOFT_STREAM_API(cuStreamBeginCapture_v2, (CUstream handle, CUstreamCaptureMode mode),
                (handle, mode)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->kind == StreamKind::Legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    begin_capture(*stream, mode, *call.thread, create_graph());
    return CUDA_SUCCESS;
}

// The first version of cuStreamBeginCapture has no mode parameter. It uses the global mode.
SOFT_STREAM_API(cuStreamBeginCapture, (CUstream handle), (handle)) {
    return cuStreamBeginCapture_v2_body(call, handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SOFT_STREAM_API(cuStreamBeginCaptureToGraph,
                (CUstream handle, CUgraph graph_handle, const CUgraphNode *after,
                 const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),
                (handle, graph_handle, after, edges, count, mode)) {
    StreamPtr stream;
    GraphPtr graph = find_graph(graph_handle);
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (!graph || mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    NodePlace place;
    if (CUresult status = find_place(&no_node, graph_handle, after, edges, count, place))
        return status;
    if (stream->kind == StreamKind::Legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture || graph->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    Capture &capture = begin_capture(*stream, mode, *call.thread, graph);
    capture.own_graph = false;
    for (const Edge &edge : place.after)
        stream->capture_tail.insert(edge.from);
    return CUDA_SUCCESS;
}

SOFT_STREAM_API(cuStreamEndCapture, (CUstream handle, CUgraph *graph), (handle, graph)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (graph)
        *graph = nullptr;
    CapturePtr capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream.get()) {
        invalidate(*capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    bool relaxed = capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    bool strange = !relaxed && capture->thread != call.thread;
    bool complete = end_capture(*capture);
    CUresult status = !capture->valid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : strange       ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                      : !complete     ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                      : CUDA_SUCCESS;
    if (status == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
        status == CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
        destroy_graph(*capture);
    else if (status || !graph)
        discard_graph(*capture);
    else
        *graph = capture->graph->handle;
    return status;
}

namespace {

// Ends the captures that began in the context, and invalidates all other captures that its streams
// are in.
void end_captures(const Context &context) {
    auto &captures = state().captures;
    for (size_t i = captures.size(); i-- > 0;) {
        CapturePtr capture = captures[i];
        if (capture->origin->owner == &context)
            abandon_capture(*capture);
        else if (involves(*capture, context))
            invalidate(*capture);
    }
}

[[gnu::constructor]] void add_captures() { add_context_end(ContextEnd::Captures, end_captures); }

} // namespace

} // namespace soft
