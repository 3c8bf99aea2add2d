#pragma once

#include "base/waiting.h"
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
    // Numbers of the first objects of a run. A step names an object by its number in the run.
    struct First {
        uint64_t operation = 0, allocation = 0, condition = 0;
    };

    // Starts a new run.
    void start(const First &first);
    // The stream as an actor. Its number depends only on the steps before.
    explore::Actor actor_of(Stream &stream) const;
    // The actor that makes the steps of the operation: its stream, or a separate actor for a kernel
    // that may begin before the previous kernel has ended.
    explore::Actor actor_of(const Operation &operation) const;
    // One more than the index of the next step.
    size_t next() const;
    void submitted(const OperationPtr &operation);
    // Keeps the name of memory that is freed before the steps that use it have been made.
    void removed(const Allocation &allocation);
    // Records that an operation has run. `outcome` has the ranges of a kernel, or is null.
    void ran(Operation &operation, const Outcome *outcome);
    // Records operations that an error has dropped: in another order they run before it.
    void dropped(std::vector<OperationPtr> operations);
    // Records an operation that the run leaves behind as one that runs at its end: in another order
    // it runs before other steps.
    void left(Operation &operation);
    // Records that an operation has run up to a place where other work may come.
    void paused(Operation &operation);
    // Records that the host goes on after it has waited for these operations, or has asked whether
    // they are done.
    void waited(const std::vector<OperationPtr> &operations);
    void asked(const std::vector<OperationPtr> &operations);
    // Records that the host goes on to use a page, which work in flight uses, too.
    void used(const Range &page, bool writes, const std::string &words);
    // Returns what the operation is, with its line. Releases the lock while the client answers.
    std::string describe(Lock &lock, const Operation &operation) const;
    // Returns whether the host knows by its waits and queries that the operation is done.
    bool knows(const Operation &operation) const;
    // Called when a wait or a query has told the host that what is ordered before an operation is
    // done, and, with `itself`, the operation, too.
    void learned(const RaceMark &operation, bool itself);
    // For clients that have no words for their operations: whether the thread's call has submitted
    // operations or made the host's steps, and says from which line the program has called.
    bool has_unplaced() const { return !unplaced_.empty() || !unplaced_looks_.empty(); }
    void place(const std::string &line);

  private:
    using List = std::vector<size_t>;

    // For a slot of a clock: the steps of its operations, by tick.
    struct OfSlot {
        std::vector<std::pair<uint64_t, size_t>> steps; // tick and step, growing
    };

    bool in_run(const Operation &operation) const;
    Range end_of(const Operation &operation) const;
    Range named(const Range &range) const;
    void add(std::vector<Range> &all, const std::vector<Range> &more) const;
    uint64_t relative(uint64_t number, uint64_t first) const;
    void add_ordered(List &after, const RaceClock &clock) const;
    void add_outcome(explore::Footprint &touched, const Operation &operation,
                     const Outcome &outcome) const;
    void add_early(explore::Footprint &touched, const Outcome &outcome) const;
    bool places() const;
    void made(Operation &operation, explore::Step step);
    explore::Step step_of(const Operation &operation) const;
    void add_order(List &after, const Operation &operation) const;
    void look(explore::Step step);

    First first_;
    // Memory of the run that has been freed, by its address: bytes and number.
    std::map<uintptr_t, std::pair<size_t, uint64_t>> freed_;
    // What the host knows by its waits and queries. The race detector's clock of the host also has
    // what the host may have learned in other ways, which depends on the order of the run.
    RaceClock known_;
    size_t looks_ = 0; // one more than the index of the host's last step
    std::unordered_map<size_t, OfSlot> slots_;
    std::vector<OperationPtr> unplaced_;
    std::vector<size_t> unplaced_looks_;
};

// Called at the end of each driver call. Finds the line that has called, if steps need it. Releases
// the lock meanwhile.
void place_new_steps(Lock &lock);

} // namespace soft
