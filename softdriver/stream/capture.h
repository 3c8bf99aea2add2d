#pragma once

#include "stream/stream.h"

#include <vector>

namespace soft {

struct Event;

// A capture; after its end, the graph.
struct Capture {
    uint64_t id = 0;
    CUgraph graph = nullptr; // valid while the capture is in progress, too
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const ThreadState *thread = nullptr;
    Stream *origin = nullptr;
    std::vector<StreamPtr> streams;
    std::vector<std::set<size_t>> nodes; // for each node the nodes that it depends on
    // Nodes removed from a stream's dependencies by the program: need not be joined.
    std::set<size_t> excused;
    std::vector<uintptr_t> memory; // allocations of nodes; freed with the graph
    std::set<uintptr_t> freed;     // allocations in `memory` that a node frees
    bool live = true;
    bool valid = true;
};

using CapturePtr = std::shared_ptr<Capture>;

// Adds a node after the captured work of a stream.
CUresult capture_node(Stream &stream);
void invalidate(Capture &capture);
// True if the capture has a stream of the context.
bool involves(const Capture &capture, const Context &context);
// For calls that are forbidden while the stream is captured (query, synchronize): returns an error
// and invalidates the capture; CUDA_SUCCESS if the stream is not captured.
CUresult refuse_captured(Stream &stream);
// The same for all captures that have a stream of the context.
CUresult refuse_captured(const Context &context);
// For calls that might synchronize implicitly (allocation, free): returns an error and invalidates
// the captures whose mode forbids it.
CUresult refuse_unsafe(const ThreadState &thread);
CUresult refuse_captured(Event &event);
// For queries of, and waits for, a stream, an event or a context: both checks.
template <class Object> CUresult refuse_waiting(const ThreadState &thread, Object &object) {
    CUresult status = refuse_captured(object);
    return status ? status : refuse_unsafe(thread);
}
// For work of the legacy stream: returns an error and invalidates the captures of blocking streams
// of the context.
CUresult refuse_implicit(const Context &context);

// Removes the capture from its streams, which may drop all other references to it. Returns false if
// work of one of them was not joined to the origin.
bool end_capture(Capture &capture);
// Destroys the graph and frees the memory allocated in it.
void discard_graph(Capture &capture);
// Ends a capture without a graph. The caller must hold a reference, as for end_capture().
void abandon_capture(Capture &capture);

// Adds a node that frees memory of the graph; an error if another node frees it already.
CUresult capture_free(Stream &stream, uintptr_t address);
CUresult capture_record(Stream &stream, Event &event);
CUresult capture_wait(Stream &stream, const Event &event);
void free_capture_memory(Capture &capture);
// Updates `shown_tail` and `shown_edges`: the handles of the nodes on which the stream's next node
// will depend.
void show_tail(Stream &stream);

} // namespace soft
