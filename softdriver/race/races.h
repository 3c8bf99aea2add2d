#pragma once

#include "race/race_order.h"
#include "race/race_record.h"
#include "race/race_watch.h"

#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace soft {

// The race detector: it hears of all that is submitted, starts and ends, and of what the host comes
// to know. Two accesses to a byte race if at least one writes and neither is ordered after the
// other, whatever the schedule made of them this time. A race is in `record` as soon as it is
// certain. All functions are called with the state lock held.
class Races {
  public:
    Races();

    RaceRecord record;

    // An operation is about to be queued in a stream.
    void submitted(Stream &stream, const OperationPtr &operation);
    // A stream is ordered after an operation that is done already.
    void passed(Stream &stream, const OperationPtr &earlier);
    // All later work of a context is ordered after an operation.
    void context_waits(const Context &context, const OperationPtr &earlier);
    // The context is destroyed; there may be another one in its place.
    void ended(const Context &context);
    void started(const OperationPtr &operation);
    void ended(const OperationPtr &operation);
    void dropped(const OperationPtr &operation);
    // Unforeseen work has come to use memory that the host can write, and may itself write there.
    void comes_to_use(const OperationPtr &operation, const Allocation &allocation);
    // It has ended, and this is what it used.
    void known(const OperationPtr &operation, Outcome &outcome);
    bool recording() const;

    // What a synchronization that begins now waits for. Not what the scheduler waits for: that may
    // be done and forgotten, and the host still not know it.
    std::vector<OperationPtr> tails(const Stream &stream) const;
    std::vector<OperationPtr> tails(const Context &context) const;
    // The host has been told that these are done.
    void learn(const std::vector<OperationPtr> &operations);
    // It has been told that all before this one is done.
    void learn_before(const OperationPtr &operation);

    // The host frees memory, which promises no waiting.
    void freed_by_host(const Allocation &allocation);
    void forgotten(const Allocation &allocation);
    void lost(const Device &device);
    // Each entry into the driver: the host may have written a value that streams wait for.
    void look() {
        if (order_.anybody_waits())
            order_.look();
    }
    // Everything before is ordered before everything later.
    void start_over();

  private:
    using Shadows = std::vector<RaceShadowPtr>; // of an operation's reads, then of its writes

    // Something to be judged in the order in which all was submitted: an access, or a free by the
    // host. It waits for what is before it to be known.
    struct Deferred {
        OperationPtr operation; // null: a free
        Shadows shadows;
        RaceClockPtr settled; // whom the host knew to be done when it was submitted, if certain
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
    std::vector<OperationPtr> functions_; // of the host, that have not ended
    // What has no certain place yet keeps its memory's shadows: the memory may go.
    std::unordered_map<const Operation *, Shadows> kept_;
    std::unordered_set<const Operation *> unwatched_; // until they start
    RaceShadowPtr just_forgotten_;                    // its stream-ordered free comes right after
};

} // namespace soft
