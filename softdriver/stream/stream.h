#pragma once

#include "device/context.h"
#include "explore/run.h"
#include "stream/stream_attributes.h"
#include "work/operation.h"

#include <deque>
#include <set>

namespace soft {

struct Call;

struct Capture;
struct RaceTrack;

// Memory in which the blocks of a cooperative launch count their arrivals at a barrier of the grid.
// NVIDIA's cooperative_groups define the layout. The memory is cleared before each launch.
struct alignas(16) GridWorkspace {
    uint32_t bytes = sizeof(GridWorkspace), barrier = 0, unused[2] = {};
};

enum class StreamKind { Created, Legacy, PerThread };

struct Stream : std::enable_shared_from_this<Stream> {
    CUstream handle = nullptr;
    uint64_t id = 0;
    StreamKind kind = StreamKind::Created;
    // Keeps the Context object alive, even if the program has destroyed the context.
    ContextPtr context;
    Context *owner = nullptr; // the stream's context, which may have been destroyed; never null
    unsigned flags = 0;
    int priority = 0;
    StreamAttributes attributes;
    // Unfinished operations in order of submission. The first one may be running.
    std::deque<OperationPtr> queue;
    size_t busy_index = 0; // index in the scheduler's list of busy streams
    uint64_t required = 0; // a synchronization or query needs all operations up to this number
    uint64_t tag = 0;      // the client's number for the stream; 0 if there is none
    // One more than the number of queries that may still answer "not ready" before a query runs
    // work; 0 before the first "not ready".
    int patience = 0;
    std::shared_ptr<Capture> capture;
    // The handles of the nodes in `capture_tail` that the program received last.
    std::vector<CUgraphNode> shown_tail;
    std::vector<uint64_t> shown_edges; // data of the edges from shown_tail; always zero
    // The ids of the nodes of the graph on which the stream's next node will depend.
    std::set<uint64_t> capture_tail;
    bool destroyed = false; // the program has destroyed the stream, but the capture still uses it
    std::shared_ptr<RaceTrack> track; // what the race detector knows of the stream, or null
    // The number of the stream as an actor of this run (schedule `replay`, see work/steps.h).
    uint64_t run = 0;
    explore::Actor actor = 0;
    // The actors of kernels that may begin before the kernel before them has ended.
    std::vector<explore::Actor> early_actors;
    // The workspace for cooperative launches. It is null until the first one.
    std::shared_ptr<GridWorkspace> workspace;

    bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }
    bool idle() const { return queue.empty(); }
};

constexpr int least_priority = 0;
constexpr int greatest_priority = -5;

using StreamPtr = std::shared_ptr<Stream>;

// Finds the stream of a handle, which may be the handle of a default stream.
CUresult resolve_stream(Call &call, CUstream handle, StreamPtr &stream);
StreamPtr create_stream(const ContextPtr &context, StreamKind kind, unsigned flags, int priority);
// Returns the legacy stream of a context or, with `per_thread`, the thread's per-thread stream.
StreamPtr default_stream(const ThreadState &thread, const ContextPtr &context, bool per_thread);

// Returns the operations for which a synchronization of the stream waits: the stream's last
// operation and, for the legacy stream, the last operations of all blocking streams of the context.
std::vector<OperationPtr> stream_targets(const Stream &stream);
// Returns the last operations of all streams of a context, or of a device.
std::vector<OperationPtr> context_targets(const Context &context);
std::vector<OperationPtr> device_targets(const Device &device);

// Appends a part of the operation `whole` to an internal stream. The race detector sees only the
// whole operation.
void submit_part(Stream &stream, const OperationPtr &part, const OperationPtr &whole);
// Submits operations that nothing orders, each in an internal stream. The stream orders all of them
// like one operation; `queued` ends when all of them have ended.
CUresult submit_apart(Stream &stream, std::vector<OperationPtr> parts, OperationPtr *queued);
// Appends an operation to the stream and sets `queued` to the operation. The stream must not be
// captured: work of a captured stream becomes a node (see capture_node).
CUresult submit(Stream &stream, OperationPtr operation, OperationPtr *queued = nullptr);

} // namespace soft
