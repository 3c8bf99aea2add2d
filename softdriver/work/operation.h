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

struct Stream;

using Clock = std::chrono::steady_clock;

enum class Progress { Queued, Running, Paused, Done };

// The result of a finished piecewise operation: the ranges that it used, and CUDA_SUCCESS or an
// error after which the device is lost.
struct Outcome {
    CUresult status = CUDA_SUCCESS;
    std::vector<Range> reads, writes, updates;
};

// Work that runs in pieces, so that other work can run in between.
struct Piecewise {
    virtual ~Piecewise() = default;
    // Runs about `steps` steps, without the state lock. Returns true when the work has finished.
    virtual bool advance(uint64_t steps) = 0;
    // Called once, with the state lock held, after advance() has returned true; never called if the
    // work was dropped.
    virtual Outcome end() = 0;
};

// One operation of a stream. It may run when it is first in its stream, all operations in `waits`
// are done, and its condition holds. Its action runs without the state lock.
struct Operation {
    uint64_t number = 0; // counts submissions to all streams
    Progress progress = Progress::Queued;
    // A host function: a driver thread runs it, never a thread of the program.
    bool on_worker = false;
    bool released = false;  // workers may run it under every schedule
    bool cancelled = false; // dropped while it was running: it ends after the current piece
    uint64_t turn = 0;      // the ready operation with the lowest turn runs first
    std::shared_ptr<Stream> stream;
    std::vector<std::shared_ptr<Operation>> waits;
    std::vector<Range> reads, writes;
    std::vector<Range> updates; // ranges of atomic accesses; these do not race with each other
    bool unforeseen = false;    // true for a kernel until it ends: its ranges are unknown
    bool uses_pages = true;     // its accesses can move pages of managed memory
    bool legacy_rules = true;   // the rules of the legacy stream apply to it
    // Its range is not data, but a value in memory for which streams wait.
    bool synchronizes = false;
    Function function = Function::Count; // the driver function that submitted the operation
    // The name of the launched kernel; null for other operations.
    std::shared_ptr<const std::string> kernel;
    RaceMark mark;
    RaceLabel label; // identifies it in reports; given by the client
    std::function<bool()> condition;
    std::function<void()> action;
    // Work in pieces, which runs instead of `action` if it is set.
    std::shared_ptr<Piecewise> pieces;
    // Objects that must live until the operation is done or dropped, such as memory that the
    // program frees earlier. They are destroyed with the state lock held.
    std::vector<std::shared_ptr<void>> kept;
    Clock::time_point finished;

    bool done() const { return progress == Progress::Done; }
    // Returns true for event records and waits, which only order other work.
    bool only_orders() const { return !action && !condition && !pieces; }
    bool writes_to(const Range &range) const {
        return std::any_of(writes.begin(), writes.end(),
                           [&](const Range &written) { return written.overlaps(range); });
    }
};

using OperationPtr = std::shared_ptr<Operation>;

} // namespace soft
