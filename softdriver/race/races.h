#pragma once

#include "race/race_host_writes.h"
#include "race/race_list.h"
#include "race/race_order.h"

#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace soft {

// The race detector. The driver calls it when an operation is submitted, starts or ends, and when
// the host learns that operations are done. Two accesses to a byte race if at least one of them
// writes and neither is ordered after the other, even if one ended before the other began. A race
// is in `list` as soon as the order of both accesses is certain. All functions are called with
// the state lock held.
class Races {
  public:
    Races();

    RaceList list;

    // Called before an operation is queued.
    void submitted(Stream &stream, const OperationPtr &operation);
    // Returns the last operation of a stream, or null if it is not known.
    OperationPtr last(const Stream &stream) const { return order_.last(stream); }
    // Called instead of queuing a wait for an operation that is already done. Orders the stream's
    // later work after this operation.
    void passed(Stream &stream, const OperationPtr &earlier);
    // Orders all later work of the context after the operation `earlier`.
    void context_waits(const Context &context, const OperationPtr &earlier);
    // Called when the context is destroyed. A later context may have the same address.
    void ended(const Context &context);
    void started(const OperationPtr &operation);
    void ended(const OperationPtr &operation);
    void dropped(const OperationPtr &operation);
    // Called when a kernel accesses an allocation for the first time. If the host can access the
    // memory too, the kernel counts as writing it from then on.
    void comes_to_use(const OperationPtr &operation, const Allocation &allocation);
    // Called when a kernel has ended. `outcome` has the ranges that the kernel used.
    void known(const OperationPtr &operation, Outcome &outcome);
    bool recording() const;

    // Returns the operations that the host knows to be done after a synchronization that begins
    // now. They include operations that are done already but unknown to the host, which the
    // scheduler does not wait for.
    std::vector<OperationPtr> tails(const Stream &stream) const;
    std::vector<OperationPtr> tails(const Context &context) const;
    // Called when a driver call has told the host that these operations are done.
    void learn(const std::vector<OperationPtr> &operations);
    // Called when a driver call has told the host that everything ordered before this operation is
    // done.
    void learn_before(const OperationPtr &operation);
    RaceClockPtr host_clock() const { return order_.host_clock(); }
    // Returns whether the host knows that the operation is done.
    bool knows(const Operation &operation) const { return order_.known(operation); }

    // Called when the host frees memory. A free never orders the host after work, because no free
    // promises to wait.
    void freed_by_host(const Allocation &allocation);
    // Like the function above, for a part of reserved addresses that the host unmaps.
    void freed_by_host(const Allocation &allocation, const Range &freed);
    void removed(const Allocation &allocation);
    void lost(const Device &device);
    // Called in each driver call, because the host may have written a value that streams wait for.
    void look() {
        if (order_.anybody_waits())
            order_.look();
    }
    // Orders all later work after all earlier work, and forgets everything that is pending or
    // deferred.
    void start_over();

  private:
    // The shadows of an operation's ranges: first of all reads, then of all writes, then of all
    // updates.
    using Shadows = std::vector<RaceShadowPtr>;

    // An operation, or a free by the host, that cannot be checked yet because the ranges of an
    // earlier kernel are unknown. Deferred work is checked in order of submission.
    struct Deferred {
        OperationPtr operation; // null for a free by the host
        Shadows shadows;
        // The host's clock when the work was deferred, or null if operations were pending.
        RaceClockPtr settled;
        Function free = Function::Count;
        uint64_t next_operation = 0;
        Range freed{}; // the range that a free by the host frees
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
    void know(const std::vector<OperationPtr> &operations);
    RaceShadowPtr shadow_of(const Range &range);
    RaceSettled settled() const { return {order_.settled().get()}; }

    RaceOrder order_;
    std::deque<Deferred> deferred_;
    RaceHostWrites host_writes_;
    std::vector<OperationPtr> functions_; // host functions that have not ended
    // The shadows of operations whose place in the order is uncertain. The memory of such an
    // operation may be freed before the operation is checked.
    std::unordered_map<const Operation *, Shadows> kept_;
    // Operations that come after an unfinished host function. Their memory is watched only from
    // their start.
    std::unordered_set<const Operation *> unwatched_;
    // The shadow of the memory that the next submitted operation frees in a stream.
    RaceShadowPtr just_removed_;
};

} // namespace soft
