#pragma once

#include "base/functions.h"
#include "base/race_clock.h"
#include "base/range.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace soft {

struct Operation;
struct Stream;

using Clock = std::chrono::steady_clock;

enum class Progress { Queued, Running, Paused, Done };

// The result of work that ran in pieces: the ranges that it used, and CUDA_SUCCESS or an error,
// after which the device is lost.
struct Outcome {
    CUresult status = CUDA_SUCCESS;
    std::vector<Range> reads, writes, updates;
    // What a kernel used before it waited for its predecessor, if it could begin before the
    // predecessor ended.
    std::vector<Range> early_reads = {}, early_writes = {}, early_updates = {};
    // The predecessor itself had not waited for its own predecessor when it let this kernel begin.
    bool runs_ahead = false;
    // The work consisted of operations that have run on their own, and that used these ranges.
    bool in_parts = false;
    // What else steps read or change (explore/run.h): the values of conditional nodes, by number;
    // the output of kernels; the device heap, from which `malloc` in kernels allocates.
    std::vector<uint64_t> conditions_read = {}, conditions_set = {};
    bool prints = false, allocates = false;
};

// Work that runs in pieces. Other work can run between two pieces.
struct Piecewise {
    virtual ~Piecewise() = default;
    // Runs about `steps` steps, without the state lock. Returns true when the work has finished.
    virtual bool advance(uint64_t steps) = 0;
    // Called once, with the state lock held, after advance() has returned true. Not called if the
    // work was dropped.
    virtual Outcome end() = 0;
    // Returns true if the work has allowed the next operation to begin before this one ends.
    virtual bool lets_next_begin() const { return false; }
    // Returns true if the work cannot go on until the previous operation has ended.
    virtual bool waits() const { return false; }
    // Returns true unless the work waits for operations that it has queued itself. Called with the
    // state lock held.
    virtual bool can_go_on() const { return true; }
    // What the work has used since it began, or, if it queues operations, since the last call.
    // Called with the state lock held, when the work has paused in a place where other work may run
    // before it goes on.
    virtual Outcome so_far() { return {}; }

    // The submitted operation that runs these pieces. Set it before the first piece runs.
    std::weak_ptr<Operation> operation;
};

// One operation of a stream. It may run when it is the first of its stream, all operations in
// `waits` are done, and `condition` returns true. Its action runs without the state lock.
struct Operation {
    uint64_t number = 0; // number of this submission, counted over all streams
    Progress progress = Progress::Queued;
    // True for a host function, which only a worker thread may run.
    bool on_worker = false;
    bool released = false;  // true when a worker may run the operation, whatever the schedule is
    bool cancelled = false; // dropped while it was running; it ends after the current piece
    uint64_t turn = 0; // of all operations that are ready, the one with the lowest turn runs first
    std::shared_ptr<Stream> stream;
    std::vector<std::shared_ptr<Operation>> waits;
    std::vector<Range> reads, writes;
    std::vector<Range> updates; // ranges of atomic accesses, which do not race with each other
    std::vector<uint64_t> conditions_set; // values of conditional nodes that its action sets
    // True for a kernel until it ends, because the ranges that it uses are not known before.
    bool unforeseen = false;
    bool uses_pages = true;   // whether its accesses can move pages of managed memory
    bool legacy_rules = true; // whether the rules of the legacy stream apply to the operation
    // True if the operation waits for a value in memory or writes such a value. The accesses to
    // this value then synchronize, and do not race.
    bool synchronizes = false;
    Function function = Function::Count; // the driver function that submitted the operation
    // The name of the launched kernel, or null if the operation is no launch.
    std::shared_ptr<const std::string> kernel;
    // For reports: the node of a graph that the operation belongs to, or empty.
    std::string node;
    RaceMark mark;
    RaceLabel label; // identifies the operation in reports; the client sets it
    // For a client's trace: the tag of the stream or 0, when it began to run, the client's numbers.
    uint64_t traced_tag = 0, traced_start = 0;
    unsigned long long traced[2] = {0, 0};
    // The previous kernel, if this kernel may begin before it ends; else null.
    std::shared_ptr<Operation> predecessor;
    // For the race detector: what this kernel does before it waits for its predecessor. This part
    // is in no queue.
    std::shared_ptr<Operation> early;
    bool is_early = false;
    unsigned chain = 0; // how many earlier kernels may all be unfinished when this one begins
    // What an early part is ordered after if the predecessor has not waited for its own
    // predecessor.
    RaceClockPtr before_ahead;
    std::function<bool()> condition;
    std::function<void()> action;
    // If this is set, the operation runs these pieces instead of `action`.
    std::shared_ptr<Piecewise> pieces;
    // Objects that must live until the operation is done or dropped, such as memory that the
    // program has already freed. They are destroyed with the state lock held.
    std::vector<std::shared_ptr<void>> kept;
    Clock::time_point finished;
    // Under the schedule `replay` (see work/steps.h): `run` is the run in which the operation was
    // submitted, `behind` is one more than the host's last step before, and `step` is one more than
    // the operation's own step.
    uint64_t run = 0;
    size_t behind = 0, step = 0;
    std::string place; // the line of the program, if the client has no words for the operation
    bool let_next_begin = false; // it has paused because it lets the next kernel begin
    // The step after which it first let the next kernel begin, plus one; 0 if it never did.
    size_t first_pause = 0;
    bool has_waited = false; // it has paused because it waits for its predecessor
    bool runs_long = false;  // under replay, it has paused because it has run for many pieces

    bool done() const { return progress == Progress::Done; }
    // Returns true for records of events and for waits, which do nothing but order other work.
    bool only_orders() const { return !action && !condition && !pieces; }
    bool writes_to(const Range &range) const {
        return std::any_of(writes.begin(), writes.end(),
                           [&](const Range &written) { return written.overlaps(range); });
    }
};

using OperationPtr = std::shared_ptr<Operation>;

inline bool all_done(const std::vector<OperationPtr> &targets) {
    return std::all_of(targets.begin(), targets.end(), [](auto &target) { return target->done(); });
}

} // namespace soft
