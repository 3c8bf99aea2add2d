#pragma once

#include "stream/stream.h"

#include <vector>

namespace soft {

struct Event;

// A capture and, once it has ended, the graph that came of it.
struct Capture {
    uint64_t id = 0;
    CUgraph graph = nullptr; // a handle from the beginning
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const ThreadState *thread = nullptr;
    Stream *origin = nullptr;
    std::vector<StreamPtr> streams;
    std::vector<std::set<size_t>> nodes; // each with the nodes that it depends on
    std::set<size_t> excused;            // the program took them off a stream; need not be joined
    std::vector<uintptr_t> memory;       // allocated inside; lives as long as the graph
    std::set<uintptr_t> freed;           // the part of it that a node frees
    bool live = true;
    bool valid = true;
};

using CapturePtr = std::shared_ptr<Capture>;

// Adds a node behind a capturing stream's work.
CUresult capture_node(Stream &stream);
void invalidate(Capture &capture);
// Whether a stream of the context is in the capture.
bool involves(const Capture &capture, const Context &context);
// The error of a call that no capture allows on this stream (query, synchronize), which it
// invalidates; CUDA_SUCCESS if the stream is not captured.
CUresult refuse_captured(Stream &stream);
// The same for everything captured in a context.
CUresult refuse_captured(const Context &context);
// The error of a call that might synchronize (allocation, free, waiting for something else), for
// the captures that protect themselves against it.
CUresult refuse_unsafe(const ThreadState &thread);
CUresult refuse_captured(Event &event);
// The error of a call that asks about the work of a stream, an event or a context, or waits for it.
template <class Object> CUresult refuse_waiting(const ThreadState &thread, Object &object) {
    CUresult status = refuse_captured(object);
    return status ? status : refuse_unsafe(thread);
}
// The error of legacy-stream work while a blocking stream of the context is captured.
CUresult refuse_implicit(const Context &context);

// Takes the capture off its streams, perhaps with the last other references to it; false if work in
// one of them was not joined to the origin.
bool end_capture(Capture &capture);
// Gives up the graph and what was allocated in it.
void discard_graph(Capture &capture);
// Ends a capture that can give no graph. As above, the caller holds a reference.
void abandon_capture(Capture &capture);

// Adds a node that frees memory of a graph, which can be done once.
CUresult capture_free(Stream &stream, uintptr_t address);
CUresult capture_record(Stream &stream, Event &event);
CUresult capture_wait(Stream &stream, const Event &event);
void free_capture_memory(Capture &capture);
// Makes the handles of the nodes that a capturing stream's next one will depend on.
void show_tail(Stream &stream);

} // namespace soft
