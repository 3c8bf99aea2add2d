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

// What the blocks of a cooperative launch synchronize with: the layout that NVIDIA's
// cooperative_groups expects. Cleared before each launch.
struct alignas(16) GridWorkspace {
    uint32_t bytes = sizeof(GridWorkspace), barrier = 0, unused[2] = {};
};

enum class StreamKind { Created, Legacy, PerThread };

struct Stream : std::enable_shared_from_this<Stream> {
    CUstream handle = nullptr;
    uint64_t id = 0;
    StreamKind kind = StreamKind::Created;
    ContextPtr context;       // perhaps destroyed
    Context *owner = nullptr; // the same
    unsigned flags = 0;
    int priority = 0;
    StreamAttributes attributes;
    std::deque<OperationPtr> queue; // in order; the first may be running
    size_t busy_index = 0;          // its place in the list of busy streams
    uint64_t required = 0;          // somebody waits for all operations up to this number
    uint64_t tag = 0;               // by which a client knows it; 0: none
    int patience = 0;               // not-ready answers left before queries force progress
    std::shared_ptr<Capture> capture;
    std::vector<CUgraphNode> shown_tail;      // the handles that the program was last shown
    std::vector<uint64_t> shown_edges;        // and their edge data, which is all zero
    std::set<size_t> capture_tail;            // the captured nodes that its next one depends on
    bool destroyed = false;                   // while captured, a destroyed stream lives on
    std::shared_ptr<RaceTrack> track;         // the race detector's view of it
    std::shared_ptr<GridWorkspace> workspace; // from the first cooperative launch on

    bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }
    bool idle() const { return queue.empty(); }
};

constexpr int least_priority = 0;
constexpr int greatest_priority = -5;

using StreamPtr = std::shared_ptr<Stream>;

// Finds the stream that a handle names in this call, default streams included.
CUresult resolve_stream(Call &call, CUstream handle, StreamPtr &stream);
StreamPtr create_stream(const ContextPtr &context, StreamKind kind, unsigned flags, int priority);
// The legacy stream of a context, or the calling thread's own one.
StreamPtr default_stream(const ThreadState &thread, const ContextPtr &context, bool per_thread);

// The last operation of a stream, and for a legacy stream those of the streams that it is ordered
// after: what synchronizing with it means.
std::vector<OperationPtr> stream_targets(const Stream &stream);
// All work of a context, or of a whole device.
std::vector<OperationPtr> context_targets(const Context &context);
std::vector<OperationPtr> device_targets(const Device &device);

// Puts an operation behind a stream's work, or into the capture that the stream is in. `queued` is
// set to the operation if it will run, to null if it was captured.
CUresult submit(Stream &stream, OperationPtr operation, OperationPtr *queued = nullptr);

} // namespace soft
