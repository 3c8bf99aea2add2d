#pragma once

#include "race/race_order.h"
#include "race/race_record.h"
#include "race/race_watch.h"

#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace soft {

// The race detector. The driver calls it at every submission, start and end of an operation, and
// whenever the host learns that operations are done. Two accesses to a byte race if at least one of
// them writes and neither is ordered after the other, even if one happened to end before the other
// began. A race is in `record` as soon as it is certain. All functions are called with the state
// lock held.
class Races {
  public:
    Races();

    RaceRecord record;

    // Called before an operation is queued.
    void submitted(Stream &stream, const OperationPtr &operation);
    // Called instead of queuing a wait for an operation that is done. Orders the stream's later
    // work after the operation.
    void passed(Stream &stream, const OperationPtr &earlier);
    // Orders all later work of the context after an operation.
    void context_waits(const Context &context, const OperationPtr &earlier);
    // Called when the context is destroyed, because another one may get the same address.
    void ended(const Context &context);
    void started(const OperationPtr &operation);
    void ended(const OperationPtr &operation);
    void dropped(const OperationPtr &operation);
    // Called when a kernel accesses an allocation for the first time. If the host can access the
    // memory too, the kernel counts as writing it from now on.
    void comes_to_use(const OperationPtr &operation, const Allocation &allocation);
    // Called when a kernel has ended. `outcome` has the ranges that it used.
    void known(const OperationPtr &operation, Outcome &outcome);
    bool recording() const;

    // Returns the operations that the host knows to be done after a synchronization that begins
    // now. The scheduler's targets are not enough: they lack operations that are done but that the
    // host does not know yet.
    std::vector<OperationPtr> tails(const Stream &stream) const;
    std::vector<OperationPtr> tails(const Context &context) const;
    // Called when a driver call has told the host that these operations are done.
    void learn(const std::vector<OperationPtr> &operations);
    // Called when a driver call has told the host that everything ordered before this operation is
    // done.
    void learn_before(const OperationPtr &operation);

    // Called when the host frees memory. This orders nothing, because no free promises to wait.
    void freed_by_host(const Allocation &allocation);
    void removed(const Allocation &allocation);
    void lost(const Device &device);
    // Called at each driver call, because the host may have written a value for which streams wait.
    void look() {
        if (order_.anybody_waits())
            order_.look();
    }
    // Orders everything before this call before everything after it.
    void start_over();

  private:
    // The shadows of an operation's ranges: first of all reads, then of all writes, then of all
    // updates.
    using Shadows = std::vector<RaceShadowPtr>;

    // An operation, or a free by the host, that cannot be checked for races yet because the ranges
    // of an earlier kernel are unknown. Deferred work is checked in order of submission.
    struct Deferred {
        OperationPtr operation; // null for a free by the host
        Shadows shadows;
        RaceClockPtr settled; // the host's clock when it was deferred; null if uncertain
        Function free = Function::Count;
        uint64_t next_operation = 0;
    };

    void check(const OperationPtr &operation);
    void judge(const OperationPtr &operation, const Shadows &shadows, const RaceSettled &settled);
    void judge_range(const OperationPtr &operation, const RaceShadowPtr &shadow, const Range &range,
                     RaceUse use, const RaceSettled &settled);
    void judge_free(const RaceShadow &shadow, const Deferred &free,
                    std::vector<RaceConflict> users);
    void use_words(const OperationPtr &operation, const Shadows &shadows);
    void judge_deferred();
    void watch(const OperationPtr &operation, const Shadows &shadows);
    bool behind_host_function(const Operation &operation) const;
    Shadows shadows_of(const Operation &operation);
    RaceShadowPtr shadow_of(const Range &range);
    RaceSettled settled() const { return {order_.settled().get()}; }

    RaceOrder order_;
    std::deque<Deferred> deferred_;
    RaceWatches watches_;
    std::vector<OperationPtr> functions_; // host functions that have not ended
    // The shadows of operations whose place in the order is uncertain. They are kept because their
    // memory may be freed before the operations are checked.
    std::unordered_map<const Operation *, Shadows> kept_;
    // Operations behind a host function. RaceWatches watches their memory only after they have
    // started.
    std::unordered_set<const Operation *> unwatched_;
    // For the next submission, which is the stream-ordered free of this memory.
    RaceShadowPtr just_removed_;
};

} // namespace soft
