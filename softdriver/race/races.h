#pragma once

#include "race/race_order.h"
#include "race/race_record.h"
#include "race/race_watch.h"

#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace soft {

// The race detector. The driver tells it of every submission, start and end, and of what the host
// gets to know. Two accesses to a byte race if at least one writes and neither is ordered after the
// other, even if this run happened to separate them. A race is in `record` as soon as it is
// certain. All functions are called with the state lock held.
class Races {
  public:
    Races();

    RaceRecord record;

    // An operation is about to be queued.
    void submitted(Stream &stream, const OperationPtr &operation);
    // The stream's later work is ordered after an operation that is done already.
    void passed(Stream &stream, const OperationPtr &earlier);
    // The context's later work is ordered after an operation.
    void context_waits(const Context &context, const OperationPtr &earlier);
    // The context is destroyed; another may get the same address.
    void ended(const Context &context);
    void started(const OperationPtr &operation);
    void ended(const OperationPtr &operation);
    void dropped(const OperationPtr &operation);
    // A kernel has accessed host-visible memory for the first time, and may write it from now on.
    void comes_to_use(const OperationPtr &operation, const Allocation &allocation);
    // A kernel has ended; `outcome` has the ranges that it used.
    void known(const OperationPtr &operation, Outcome &outcome);
    bool recording() const;

    // The operations that a synchronization waits for if it begins now. The scheduler's targets do
    // not suffice: they lack finished operations, which the host does not know yet.
    std::vector<OperationPtr> tails(const Stream &stream) const;
    std::vector<OperationPtr> tails(const Context &context) const;
    // A call has told the host that these operations are done.
    void learn(const std::vector<OperationPtr> &operations);
    // A call has told the host that everything ordered before this operation is done.
    void learn_before(const OperationPtr &operation);

    // The host frees memory. No free promises to wait, so this orders nothing.
    void freed_by_host(const Allocation &allocation);
    void removed(const Allocation &allocation);
    void lost(const Device &device);
    // Called at each driver call: the host may have written a value for which streams wait.
    void look() {
        if (order_.anybody_waits())
            order_.look();
    }
    // From now on everything earlier is ordered before everything later.
    void start_over();

  private:
    // One for each range: of reads, then of writes, then of updates.
    using Shadows = std::vector<RaceShadowPtr>;

    // An access, or a free by the host, that is judged later, in order of submission, because an
    // earlier kernel's ranges are still unknown.
    struct Deferred {
        OperationPtr operation; // null: a free by the host
        Shadows shadows;
        RaceClockPtr settled; // the host's clock at that time; null if uncertain
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
    // The shadows of operations whose place is uncertain: their memory may be freed before they are
    // checked.
    std::unordered_map<const Operation *, Shadows> kept_;
    // Operations behind a host function: watched only once they start.
    std::unordered_set<const Operation *> unwatched_;
    RaceShadowPtr just_removed_; // for its stream-ordered free, which is submitted next
};

} // namespace soft
