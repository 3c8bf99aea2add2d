#pragma once

#include "work/operation.h"

#include <functional>
#include <list>
#include <unordered_map>

namespace soft {

class RaceShadow;
struct Context;
struct Device;

// The detector's view of a stream. It outlives the stream until the host knows that all of its work
// is done.
struct RaceTrack {
    size_t slot = 0;   // index in clocks; reused after the track
    uint64_t tick = 0; // number of its last operation
    OperationPtr tail; // its last operation
    std::weak_ptr<Stream> stream;
    const Context *context = nullptr; // only compared, never dereferenced
    CUstream handle = nullptr;
    uint64_t id = 0;
    bool legacy = false, per_thread = false, blocking = false;
};

using RaceTrackPtr = std::shared_ptr<RaceTrack>;

// The order of operations, kept as vector clocks. It comes from streams, event waits, legacy
// streams and the host. All threads of the program count as one host, because the state lock orders
// their calls.
//
// The place of an operation is uncertain while it is behind a wait for a value in memory that has
// not come. When the value comes, the wait is ordered after whatever wrote it. Until then such
// operations are in `pending_`.
class RaceOrder {
  public:
    using Certain = std::function<void(const OperationPtr &)>;
    using Visit = std::function<void(const Operation &)>;
    using EachUnrecorded = std::function<void(const Visit &)>;
    // `certain` is called once for each operation, as soon as its place is certain. `unrecorded`
    // visits the operations that are not in any shadow yet.
    RaceOrder(Certain certain, EachUnrecorded unrecorded)
        : certain_(std::move(certain)), unrecorded_(std::move(unrecorded)) {}

    // Orders an operation after the last one of its stream and after everything it waits for.
    void place(Stream &stream, const OperationPtr &operation);
    // Orders everything that the context submits later after this operation.
    void add_gate(const Context &context, const OperationPtr &gate);
    void remove_gates(const Context &context) { gates_.erase(&context); }
    // Checks whether awaited values have come.
    void look();
    // The value of this wait has come: the wait is about to end.
    void arrived(const Operation &wait);
    // The operation will never run.
    void abandon(const Operation &operation);
    // Called around a device operation that may write awaited words: a wait that sees the new value
    // is ordered after the writer, not after the host.
    void before_write(const Operation &writer);
    void after_write(const Operation &writer);

    // The last operation of a stream, with those that a synchronization with it includes; or all
    // last operations of a context.
    std::vector<OperationPtr> tails(const Stream &stream) const;
    std::vector<OperationPtr> tails(const Context &context) const;
    // The host now knows that these operations are done. Returns true if that is new.
    bool learn(const std::vector<OperationPtr> &operations);
    // Nothing of the context runs any more. The host knows its operations, but not what they waited
    // for.
    bool over(const Context &context);
    // Like learn(), for everything that is ordered before the operation, but not the operation
    // itself.
    bool learn_before(const Operation &operation);
    bool known(const Operation &operation) const;
    bool anybody_waits() const { return !waits_.empty(); }
    RaceClockPtr host_clock() const { return host_; }
    // The host's clock if nothing is pending, else null: pending operations may have an older
    // clock.
    RaceClockPtr settled() const { return pending_.empty() ? host_ : nullptr; }
    // Visits all pending operations: waits for values, and work behind them.
    template <class Visit> void each_waiting(Visit visit) const {
        for (const Pending &pending : pending_)
            visit(pending.operation);
    }

    // From now on the host knows all earlier operations. Pending ones are never checked.
    void start_over();

  private:
    struct Pending {
        OperationPtr operation;
        std::vector<OperationPtr> after; // predecessors that were uncertain at submission
        RaceClockPtr before;             // all other predecessors, and the host at submission
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
    std::list<Pending> pending_;   // in order of submission
    std::vector<Pending *> waits_; // the pending waits for values
};

} // namespace soft
