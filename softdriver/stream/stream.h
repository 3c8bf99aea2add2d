#pragma once

#include "device/context.h"
#include "stream/stream_attributes.h"
#include "work/operation.h"

#include <deque>
#include <set>

namespace soft {

struct Call;

struct Capture;
struct RaceTrack;

// The memory with which the blocks of a cooperative launch synchronize, in the layout that NVIDIA's
// cooperative_groups expects. Cleared before each launch.
struct alignas(16) GridWorkspace {
    uint32_t bytes = sizeof(GridWorkspace), barrier = 0, unused[2] = {};
};

enum class StreamKind { Created, Legacy, PerThread };

struct Stream : std::enable_shared_from_this<Stream> {
    CUstream handle = nullptr;
    uint64_t id = 0;
    StreamKind kind = StreamKind::Created;
    ContextPtr context;       // owns the Context object; the context may be destroyed
    Context *owner = nullptr; // context.get()
    unsigned flags = 0;
    int priority = 0;
    StreamAttributes attributes;
    std::deque<OperationPtr> queue; // in order of submission; the first may be running
    size_t busy_index = 0;          // index in the scheduler's list of busy streams
    uint64_t required = 0; // a synchronization or query needs all operations up to this number
    uint64_t tag = 0;      // the client's number for the stream; 0: none
    int patience = 0;      // not-ready answers left before queries force progress
    std::shared_ptr<Capture> capture;
    std::vector<CUgraphNode> shown_tail; // node handles last returned to the program
    std::vector<uint64_t> shown_edges;   // edge data for shown_tail; all zero
    std::set<size_t> capture_tail;       // captured nodes on which the next node depends
    bool destroyed = false;              // destroyed by the program, but still part of a capture
    std::shared_ptr<RaceTrack> track;    // the race detector's state; may be null
    std::shared_ptr<GridWorkspace> workspace; // null until the first cooperative launch

    bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }
    bool idle() const { return queue.empty(); }
};

constexpr int least_priority = 0;
constexpr int greatest_priority = -5;

using StreamPtr = std::shared_ptr<Stream>;

// Finds the stream of a handle, default streams included.
CUresult resolve_stream(Call &call, CUstream handle, StreamPtr &stream);
StreamPtr create_stream(const ContextPtr &context, StreamKind kind, unsigned flags, int priority);
// The legacy stream of a context, or the thread's per-thread stream.
StreamPtr default_stream(const ThreadState &thread, const ContextPtr &context, bool per_thread);

// What synchronizing with a stream waits for: its last operation and, for the legacy stream, the
// last operations of all blocking streams of the context.
std::vector<OperationPtr> stream_targets(const Stream &stream);
// The last operations of all streams of a context, or of a device.
std::vector<OperationPtr> context_targets(const Context &context);
std::vector<OperationPtr> device_targets(const Device &device);

// Appends an operation to a stream, or adds a node to the capture that the stream is in. `queued`
// is set to the operation; it stays unchanged if the operation was captured.
CUresult submit(Stream &stream, OperationPtr operation, OperationPtr *queued = nullptr);

} // namespace soft
