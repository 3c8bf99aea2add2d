#pragma once

#include "explore/chooser.h"
#include "work/operation.h"

#include <map>
#include <unordered_map>

namespace soft {

struct Allocation;

// Records the steps of a run under the schedule `replay`: see explore/run.h. All functions are
// called with the state lock held.
class Steps {
  public:
    // Starts a new run.
    void start(uint64_t next_operation, uint64_t next_allocation);
    // The stream as an actor. Its number depends only on the steps before.
    explore::Actor actor_of(Stream &stream) const;
    void submitted(Operation &operation) const;
    // Keeps the name of memory that is freed before the steps that use it have been made.
    void removed(const Allocation &allocation);
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

    uint64_t first_operation_ = 0, first_allocation_ = 0; // of the run
    // Memory of the run that has been freed, by its address: bytes and number.
    std::map<uintptr_t, std::pair<size_t, uint64_t>> freed_;
    size_t looks_ = 0; // one more than the index of the host's last step
    std::unordered_map<size_t, OfSlot> slots_;
};

} // namespace soft
