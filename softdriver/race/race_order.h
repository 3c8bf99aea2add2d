#pragma once

#include "work/operation.h"

#include <functional>
#include <list>
#include <unordered_map>

namespace soft {

class RaceShadow;
struct Context;
struct Device;

// What the detector knows of a stream. It outlives the stream until the host knows that all of the
// stream's work is done.
struct RaceTrack {
    size_t slot = 0;   // index in clocks; another track may take it when this one has ended
    uint64_t tick = 0; // number of the stream's last operation
    OperationPtr tail; // the stream's last operation
    std::weak_ptr<Stream> stream;
    const Context *context = nullptr; // the stream's context: only compared, never dereferenced
    CUstream handle = nullptr;
    uint64_t id = 0;
    bool legacy = false, per_thread = false, blocking = false;
};

using RaceTrackPtr = std::shared_ptr<RaceTrack>;

// The order of operations, kept as vector clocks. It comes from streams, event waits, legacy
// streams and the host. All threads of the program count as one host, because the state lock orders
// their calls. The place of an operation in this order is uncertain while the operation is behind a
// wait for a value in memory that has not come: only when the value comes is it known who wrote it,
// and the wait is ordered after the writer. Until then the operation is in `pending_`.
class RaceOrder {
  public:
    using Certain = std::function<void(const OperationPtr &)>;
    using Visit = std::function<void(const Operation &)>;
    using EachUnrecorded = std::function<void(const Visit &)>;
    // `certain` is called once for each operation, as soon as its place in the order is certain.
    // `unrecorded` visits the operations that are not in any shadow (RaceShadow) yet.
    RaceOrder(Certain certain, EachUnrecorded unrecorded)
        : certain_(std::move(certain)), unrecorded_(std::move(unrecorded)) {}

    // Orders an operation after the last operation of its stream, and after everything for which it
    // waits.
    void place(Stream &stream, const OperationPtr &operation);
    // Orders everything that the context submits from now on after this operation.
    void add_gate(const Context &context, const OperationPtr &gate);
    void remove_gates(const Context &context) { gates_.erase(&context); }
    // Checks whether values for which streams wait have come.
    void look();
    // Call this when the scheduler has seen the value of this wait.
    void arrived(const Operation &wait);
    // Call this when an operation has been dropped, so that it will never run.
    void abandon(const Operation &operation);
    // Call these around a device operation that may write a word for which a stream waits. A wait
    // that sees the new value is then ordered after the writer and not after the host.
    void before_write(const Operation &writer);
    void after_write(const Operation &writer);

    // Returns the last operation of a stream and those with which a synchronization also waits; or
    // the last operations of all streams of a context.
    std::vector<OperationPtr> tails(const Stream &stream) const;
    std::vector<OperationPtr> tails(const Context &context) const;
    // Call this when the host has learned that these operations are done. Returns true if it did
    // not know before.
    bool learn(const std::vector<OperationPtr> &operations);
    // Call this when nothing of the context runs any more. The host then knows that the context's
    // operations are done, but nothing of the operations for which these waited. Returns true if it
    // did not know before.
    bool over(const Context &context);
    // Like learn(), for everything that is ordered before the operation, except the operation
    // itself.
    bool learn_before(const Operation &operation);
    bool known(const Operation &operation) const;
    bool anybody_waits() const { return !waits_.empty(); }
    RaceClockPtr host_clock() const { return host_; }
    // Returns the host's clock, or null if operations are pending, because these may have an older
    // clock.
    RaceClockPtr settled() const { return pending_.empty() ? host_ : nullptr; }
    // Visits all pending operations: waits for values that have not come, and the work behind these
    // waits.
    template <class Visit> void each_waiting(Visit visit) const {
        for (const Pending &pending : pending_)
            visit(pending.operation);
    }

    // Makes the host know all earlier operations. Pending operations are never checked.
    void start_over();

  private:
    struct Pending {
        OperationPtr operation;
        std::vector<OperationPtr> after; // the predecessors whose place was uncertain at submission
        // All other predecessors, and what the host knew at submission.
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
    std::list<Pending> pending_;   // pending operations, in order of submission
    std::vector<Pending *> waits_; // those of `pending_` that are waits for values
};

} // namespace soft
