#include "api/call.h"
#include "api/state.h"

#include <algorithm>

// This file implements stream capture. Operations of captured streams do not run, but become nodes
// of a graph.

namespace soft {
namespace {

// Returns true if the origin stream depends, directly or through other nodes, on every node of the
// capture. Nodes in `excused`, and the nodes on which they depend, do not count.
bool joined(const Capture &capture) {
    std::set<size_t> reached;
    std::vector<size_t> todo(capture.origin->capture_tail.begin(),
                             capture.origin->capture_tail.end());
    todo.insert(todo.end(), capture.excused.begin(), capture.excused.end());
    while (!todo.empty()) {
        size_t node = todo.back();
        todo.pop_back();
        if (reached.insert(node).second)
            todo.insert(todo.end(), capture.nodes[node].begin(), capture.nodes[node].end());
    }
    return reached.size() == capture.nodes.size();
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

void free_capture_memory(Capture &capture) {
    for (uintptr_t address : capture.memory)
        if (Allocation *allocation = find_allocation(address); allocation && allocation->captured)
            free_allocation(*allocation);
    capture.memory.clear();
}

bool end_capture(Capture &capture) {
    bool complete = joined(capture);
    std::vector<StreamPtr> streams = std::move(capture.streams);
    for (const auto &stream : streams) {
        stream->capture_tail.clear();
        if (stream->destroyed)
            state().streams.erase(reinterpret_cast<uintptr_t>(stream->handle));
    }
    capture.live = false;
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
    free_capture_memory(capture);
    state().graphs.erase(reinterpret_cast<uintptr_t>(capture.graph));
}

CUresult capture_node(Stream &stream) {
    Capture &capture = *stream.capture;
    if (!capture.valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    capture.nodes.push_back(stream.capture_tail);
    stream.capture_tail = {capture.nodes.size() - 1};
    return CUDA_SUCCESS;
}

CUresult capture_free(Stream &stream, uintptr_t address) {
    if (stream.capture->freed.count(address))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = capture_node(stream);
    if (status == CUDA_SUCCESS)
        stream.capture->freed.insert(address);
    return status;
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
    auto capture = std::make_shared<Capture>();
    capture->id = state().new_id();
    capture->mode = mode;
    capture->thread = call.thread;
    capture->origin = stream.get();
    join(*stream, capture);
    capture->graph = reinterpret_cast<CUgraph>(state().graphs.insert(capture, state().reuse()));
    state().captures.push_back(std::move(capture));
    return CUDA_SUCCESS;
}

// The first version of cuStreamBeginCapture has no mode parameter. It uses the global mode.
SOFT_STREAM_API(cuStreamBeginCapture, (CUstream handle), (handle)) {
    return cuStreamBeginCapture_v2_body(call, handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
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
    if (status || !graph)
        discard_graph(*capture);
    else
        *graph = capture->graph;
    return status;
}

SOFT_API(cuGraphDestroy, (CUgraph handle), (handle)) {
    CapturePtr graph = state().graphs.find(reinterpret_cast<uintptr_t>(handle));
    if (!graph || graph->live)
        return CUDA_ERROR_INVALID_VALUE;
    discard_graph(*graph);
    return CUDA_SUCCESS;
}

} // namespace soft
