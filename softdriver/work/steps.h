#pragma once

#include "explore/chooser.h"
#include "work/operation.h"

#include <unordered_map>

namespace soft {

// Records the steps of a run under the schedule `replay`: see explore/run.h. All functions are
// called with the state lock held.
class Steps {
  public:
    // Starts a new run.
    void start(uint64_t next_operation, uint64_t next_id);
    // The stream as an actor. Its number depends only on the steps before.
    explore::Actor actor_of(Stream &stream) const;
    void submitted(Operation &operation) const;
    // Records that an operation has run. `outcome` has the ranges of a kernel, or is null.
    void ran(Operation &operation, const Outcome *outcome);
    // Records that the host goes on after it has waited for these operations, or has asked whether
    // they are done.
    void waited(const std::vector<OperationPtr> &operations);
    void asked(const std::vector<OperationPtr> &operations);

  private:
    using List = std::vector<size_t>;

    // The last step of each slot of a clock up to a tick.
    struct OfSlot {
        std::vector<std::pair<uint64_t, size_t>> steps; // tick and step, growing
    };

    bool in_run(const Operation &operation) const;
    Range end_of(const Operation &operation) const;
    Range named(const Range &range) const;
    void add(std::vector<Range> &all, const std::vector<Range> &more) const;
    void add_ordered(List &after, const RaceClock &clock) const;
    void look(explore::Step step);

    uint64_t first_operation_ = 0, first_id_ = 0; // of the run
    size_t looks_ = 0; // one more than the index of the host's last step
    std::unordered_map<size_t, OfSlot> slots_;
};

} // namespace soft
