#pragma once

#include "stream/stream.h"

#include <vector>

namespace soft {

struct Event;

// A capture of streams. After its end it stands for the graph.
struct Capture {
    uint64_t id = 0;
    CUgraph graph = nullptr; // the graph's handle, valid from the beginning of the capture
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const ThreadState *thread = nullptr;
    Stream *origin = nullptr;
    std::vector<StreamPtr> streams;
    std::vector<std::set<size_t>> nodes; // for each node, the nodes on which it depends
    // Nodes that the program has removed from a stream's dependencies. The origin stream need not
    // wait for them.
    std::set<size_t> excused;
    std::vector<uintptr_t> memory; // allocations of nodes, which are freed with the graph
    std::set<uintptr_t> freed;     // those allocations in `memory` that a node frees
    bool live = true;
    bool valid = true;
};

using CapturePtr = std::shared_ptr<Capture>;

// Adds a node that depends on the captured work of a stream.
CUresult capture_node(Stream &stream);
void invalidate(Capture &capture);
// Returns true if a stream of the context is in the capture.
bool involves(const Capture &capture, const Context &context);
// Called by functions that are forbidden while the stream is captured (query, synchronize). If it
// is captured, invalidates the capture and returns an error; else returns CUDA_SUCCESS.
CUresult refuse_captured(Stream &stream);
// Called by functions that are forbidden while a stream of the context is captured. Invalidates
// each capture that has such a stream and returns an error; returns CUDA_SUCCESS if there is none.
CUresult refuse_captured(const Context &context);
// Called by functions that might synchronize implicitly (allocation, free). Invalidates the
// captures whose mode forbids such calls in this thread and returns an error; returns CUDA_SUCCESS
// if there is none.
CUresult refuse_unsafe(const ThreadState &thread);
CUresult refuse_captured(Event &event);
// Called by queries of a stream, an event or a context, and by waits for one. Does both
// refuse_captured() and refuse_unsafe().
template <class Object> CUresult refuse_waiting(const ThreadState &thread, Object &object) {
    CUresult status = refuse_captured(object);
    return status ? status : refuse_unsafe(thread);
}
// Called for work of the legacy stream. Invalidates the captures of blocking streams of the context
// and returns an error; returns CUDA_SUCCESS if there is none.
CUresult refuse_implicit(const Context &context);

// Removes the capture from its streams. Returns false if the origin stream does not wait for the
// captured work of one of them. The caller must hold a reference to the capture, because the
// streams drop theirs.
bool end_capture(Capture &capture);
// Destroys the graph and frees the memory allocated in it.
void discard_graph(Capture &capture);
// Ends a capture and discards its graph. The caller must hold a reference, as for end_capture().
void abandon_capture(Capture &capture);

// Adds a node that frees memory of the graph. Returns an error if another node already frees it.
CUresult capture_free(Stream &stream, uintptr_t address);
CUresult capture_record(Stream &stream, Event &event);
CUresult capture_wait(Stream &stream, const Event &event);
void free_capture_memory(Capture &capture);
// Updates `shown_tail` and `shown_edges` of the stream, which the program can read: the handles of
// the nodes on which the stream's next node will depend, and the data of these edges.
void show_tail(Stream &stream);

} // namespace soft
