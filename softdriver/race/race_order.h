#pragma once

#include "work/operation.h"

#include <functional>
#include <list>
#include <unordered_map>

namespace soft {

class RaceShadow;
struct Context;
struct Device;

// A stream as the detector sees it: it outlives the stream until the host knows its work done.
struct RaceTrack {
    size_t slot = 0;   // its place in clocks; used again after it
    uint64_t tick = 0; // the number of its last operation
    OperationPtr tail; // that operation
    std::weak_ptr<Stream> stream;
    const Context *context = nullptr; // for comparison only
    CUstream handle = nullptr;
    uint64_t id = 0;
    bool legacy = false, per_thread = false, blocking = false;
};

using RaceTrackPtr = std::shared_ptr<RaceTrack>;

// What is ordered after what, by clocks: streams in themselves, event waits, legacy streams, and
// one host for all threads of the program (the state lock puts their calls in a row).
//
// What is behind a value in memory that has not come has no certain place yet: when the value
// comes, it is ordered after whatever wrote it. Until then it is kept aside.
class RaceOrder {
  public:
    using Certain = std::function<void(const OperationPtr &)>;
    using Visit = std::function<void(const Operation &)>;
    using EachUnrecorded = std::function<void(const Visit &)>;
    // `certain` is called once for each operation, as soon as its place is known. `unrecorded`
    // visits the operations that no shadow knows yet.
    RaceOrder(Certain certain, EachUnrecorded unrecorded)
        : certain_(std::move(certain)), unrecorded_(std::move(unrecorded)) {}

    // Puts an operation behind its stream's others and whatever it waits for.
    void place(Stream &stream, const OperationPtr &operation);
    // Everything that a context submits from now on is ordered after this.
    void add_gate(const Context &context, const OperationPtr &gate);
    void remove_gates(const Context &context) { gates_.erase(&context); }
    // Whether values have come that operations wait for.
    void look();
    // This value has come: its wait is about to be over.
    void arrived(const Operation &wait);
    // It will never run.
    void abandon(const Operation &operation);
    // A device operation writes words that others wait for: whoever sees the new value is
    // ordered after the writer and not after the host.
    void before_write(const Operation &writer);
    void after_write(const Operation &writer);

    // The last operations of a stream and those that a synchronization with it includes.
    std::vector<OperationPtr> tails(const Stream &stream) const;
    std::vector<OperationPtr> tails(const Context &context) const;
    // The host comes to know that they are done. True if that is news.
    bool learn(const std::vector<OperationPtr> &operations);
    // Nothing of a context runs any more, which says nothing of what that waited for.
    bool over(const Context &context);
    // As `learn`, for what an operation is ordered after, without itself.
    bool learn_before(const Operation &operation);
    bool known(const Operation &operation) const;
    bool anybody_waits() const { return !waits_.empty(); }
    RaceClockPtr host_clock() const { return host_; }
    // The host's knowledge, if all that is still to be placed has it, too; else null.
    RaceClockPtr settled() const { return pending_.empty() ? host_ : nullptr; }
    // Visits what waits for a value in memory, or is behind one that does.
    template <class Visit> void each_waiting(Visit visit) const {
        for (const Pending &pending : pending_)
            visit(pending.operation);
    }

    // From here on the host knows everything before. What had no place is never checked.
    void start_over();

  private:
    struct Pending {
        OperationPtr operation;
        std::vector<OperationPtr> after; // those of its predecessors that had no place either
        RaceClockPtr before;             // all others, and the host at submission
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
    std::vector<Pending *> waits_; // those of them that wait for a value
};

} // namespace soft
