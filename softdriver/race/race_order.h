#pragma once

#include "work/operation.h"

#include <functional>
#include <list>
#include <unordered_map>

namespace soft {

class RaceShadow;
struct Context;
struct Device;

// What the race detector knows of a stream. A track outlives its stream until the host knows that
// all work of the stream is done.
struct RaceTrack {
    size_t slot = 0;   // index in clocks; a new track may take over the slot of an ended track
    uint64_t tick = 0; // number of the stream's last operation
    OperationPtr tail; // the stream's last operation
    std::weak_ptr<Stream> stream;
    // The track of kernel parts that may run before the stream's earlier work has ended, or null.
    std::shared_ptr<RaceTrack> early;
    // The stream's context, which is compared but never dereferenced.
    const Context *context = nullptr;
    CUstream handle = nullptr;
    uint64_t id = 0;
    bool legacy = false, per_thread = false, blocking = false;
};

using RaceTrackPtr = std::shared_ptr<RaceTrack>;

// The order of operations, kept as vector clocks. Streams, event waits, legacy streams and the host
// define this order. All threads of the program count as one host, because the state lock orders
// their calls. A wait for a value in memory is ordered after the operation that wrote the value.
// Until the value has come, the writer is unknown, so the places of the wait and of the work behind
// it are uncertain, and these operations are in `pending_`.
class RaceOrder {
  public:
    using Certain = std::function<void(const OperationPtr &)>;
    using Visit = std::function<void(const Operation &)>;
    using EachUnrecorded = std::function<void(const Visit &)>;
    // `certain` is called once for each operation, when its place in the order has become certain.
    // `unrecorded` visits the operations whose accesses are not recorded in a RaceShadow yet.
    RaceOrder(Certain certain, EachUnrecorded unrecorded)
        : certain_(std::move(certain)), unrecorded_(std::move(unrecorded)) {}

    // Orders an operation after the last operation of its stream and after everything that it waits
    // for.
    void place(Stream &stream, const OperationPtr &operation);
    // Call this before place() for a kernel that may begin before its predecessor ends. Orders its
    // early part after what the predecessor is ordered after. Returns false if this is not known
    // yet.
    bool place_early(Stream &stream, const OperationPtr &operation);
    OperationPtr last(const Stream &stream) const;
    // Orders the operation `gate` before all work that the context submits later.
    void add_gate(const Context &context, const OperationPtr &gate);
    void remove_gates(const Context &context) { gates_.erase(&context); }
    // Checks the pending waits. If an awaited value has been written, determines the places of all
    // pending operations for which this is possible now.
    void look();
    // Call this when the scheduler has ended this wait, because the value has come.
    void arrived(const Operation &wait);
    // Call this when an operation has been dropped and will never run.
    void abandon(const Operation &operation);
    // Call these before and after a device operation that may write a word that a stream waits for.
    // If the operation writes the awaited value, the wait is ordered after the operation, and not
    // after the host.
    void before_write(const Operation &writer);
    void after_write(const Operation &writer);

    // Returns the operations that a synchronization with the stream makes known to the host: the
    // last operation of the stream and, for the legacy stream, of all blocking streams of the
    // context. The second overload returns the last operations of all streams of the context.
    std::vector<OperationPtr> tails(const Stream &stream) const;
    std::vector<OperationPtr> tails(const Context &context) const;
    // Call this when the host has learned that these operations are done. Returns true if the
    // host did not know it before.
    bool learn(const std::vector<OperationPtr> &operations);
    // Call this when no work of the context runs any more. The host then knows that the context's
    // operations are done, but learns nothing about work of other contexts. Returns true if the
    // host did not know this before.
    bool over(const Context &context);
    // Like learn(), for everything that is ordered before the operation, but not for the operation
    // itself.
    bool learn_before(const Operation &operation);
    bool known(const Operation &operation) const;
    bool anybody_waits() const { return !waits_.empty(); }
    RaceClockPtr host_clock() const { return host_; }
    // Returns the host's clock: operations in it need no checks against later work. Returns null
    // while operations are pending, because the host knew less when it submitted these.
    RaceClockPtr settled() const { return pending_.empty() ? host_ : nullptr; }
    // Visits all pending operations: waits for values that have not been written, and the work
    // behind these waits.
    template <class Visit> void each_waiting(Visit visit) const {
        for (const Pending &pending : pending_)
            visit(pending.operation);
    }

    // Orders all later work after all earlier work. Operations that are pending now are never
    // checked.
    void start_over();

  private:
    struct Pending {
        OperationPtr operation;
        std::vector<OperationPtr> after; // predecessors whose place was uncertain at submission
        // The predecessors whose place was certain, and what the host knew at submission.
        RaceClockPtr before;
        bool is_wait, arrived = false, by_device = false;
    };

    const std::vector<OperationPtr> &gates_of(const Context *context);
    RaceTrackPtr track_of(Stream &stream);
    RaceTrackPtr new_track();
    bool has_come(Pending &pending);
    bool will_change(const Pending &pending, const RaceShadow &memory) const;
    void sweep();

    Certain certain_;
    EachUnrecorded unrecorded_;
    std::vector<RaceTrackPtr> tracks_;
    std::unordered_map<const Context *, std::vector<OperationPtr>> gates_;
    RaceClockPtr host_ = std::make_shared<RaceClock>();
    std::list<Pending> pending_;   // operations whose place is uncertain, in order of submission
    std::vector<Pending *> waits_; // the entries of `pending_` that wait for a value themselves
};

} // namespace soft
