#pragma once

#include "graph/graph.h"
#include "stream/stream.h"

#include <vector>

namespace soft {

struct Event;

// A capture of streams.
struct Capture {
    uint64_t id = 0;
    GraphPtr graph;        // the graph to which the capture adds nodes
    bool own_graph = true; // the capture has created the graph
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const ThreadState *thread = nullptr;
    Stream *origin = nullptr;
    std::vector<StreamPtr> streams;
    uint64_t first = 0; // nodes with this id or a higher one were added by the capture
    // Nodes that the program has removed from a stream's dependencies. cuStreamEndCapture succeeds
    // even if the origin stream does not depend on them.
    std::set<uint64_t> excused;
    bool live = true;
    bool valid = true;
};

using CapturePtr = std::shared_ptr<Capture>;

// Adds a node that depends on what the stream has captured so far. With `programmatic`, the node is
// a kernel that may start before the kernels on which it depends end, so the edges from these
// kernels are programmatic.
CUresult capture_node(Stream &stream, NodeWorkPtr work, bool programmatic = false);
void invalidate(Capture &capture);
// Returns true if a stream of the context takes part in the capture.
bool involves(const Capture &capture, const Context &context);
// Functions that are forbidden on a captured stream (query, synchronize) call this. If the stream
// is being captured, invalidates the capture and returns an error.
CUresult refuse_captured(Stream &stream);
// Functions that are forbidden while any stream of the context is being captured call this.
// Invalidates these captures and returns an error, if there are any.
CUresult refuse_captured(const Context &context);
// Functions that might synchronize implicitly (allocation, free) call this. Invalidates the
// captures that forbid such calls in this thread and returns an error, if there are any.
CUresult refuse_unsafe(const ThreadState &thread);
CUresult refuse_captured(Event &event);
// Functions that query a stream, an event or a context, or wait for one, call this. Does both
// refuse_captured() and refuse_unsafe().
template <class Object> CUresult refuse_waiting(const ThreadState &thread, Object &object) {
    CUresult status = refuse_captured(object);
    return status ? status : refuse_unsafe(thread);
}
// Functions that submit work to the legacy stream call this. Invalidates the captures of blocking
// streams of the context and returns an error, if there are any.
CUresult refuse_implicit(const Context &context);

// Ends the capture of its streams. Returns false if the origin stream does not wait for all
// captured work. The caller must hold a reference to the capture, because the streams drop theirs.
bool end_capture(Capture &capture);
// Destroys the graph, unless the program has created it.
void discard_graph(Capture &capture);
// Ends a capture and discards its graph. The caller must hold a reference to the capture.
void abandon_capture(Capture &capture);

CUresult capture_record(Stream &stream, Event &event);
CUresult capture_wait(Stream &stream, const Event &event);
// Updates `shown_tail` and `shown_edges` of the stream, which the program can read: the handles of
// the nodes on which the stream's next node will depend, and the data of these dependencies.
void show_tail(Stream &stream);

} // namespace soft
