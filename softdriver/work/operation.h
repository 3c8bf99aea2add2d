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

// The result of a finished piecewise operation: the ranges that it used, and the error that loses
// the device, if any.
struct Outcome {
    CUresult status = CUDA_SUCCESS;
    std::vector<Range> reads, writes, updates;
};

// Work that runs in pieces, so that other work can run in between.
struct Piecewise {
    virtual ~Piecewise() = default;
    // Runs about this many steps, without the state lock. Returns true when the work has finished.
    virtual bool advance(uint64_t steps) = 0;
    // Called once after advance() returned true, unless the work was dropped; with the state lock
    // held.
    virtual Outcome end() = 0;
};

// One operation of a stream. It may run when it is first in its stream, all operations in `waits`
// are done, and its condition holds. Its action runs without the state lock.
struct Operation {
    uint64_t number = 0; // order of submission, over all streams
    Progress progress = Progress::Queued;
    bool on_worker = false; // a host function: runs on a driver thread, never on a caller's
    bool released = false;  // workers may run it under every schedule
    bool cancelled = false; // dropped while running: it ends after the current piece
    uint64_t turn = 0;      // the ready operation with the lowest turn runs first
    std::shared_ptr<Stream> stream;
    std::vector<std::shared_ptr<Operation>> waits;
    std::vector<Range> reads, writes;
    std::vector<Range> updates; // ranges of atomic accesses, which do not race with each other
    bool unforeseen = false;    // true while its ranges are unknown: a kernel's, until it ends
    bool legacy_rules = true;   // whether it is ordered with the legacy stream
    bool synchronizes = false;  // its ranges are a value that streams synchronize with, not data
    Function function = Function::Count; // the driver function that submitted it
    // Name of the launched kernel; null for other operations.
    std::shared_ptr<const std::string> kernel;
    RaceMark mark;
    RaceLabel label; // given by the client, for reports
    std::function<bool()> condition;
    std::function<void()> action;
    std::shared_ptr<Piecewise> pieces; // if set, runs instead of `action`
    // Objects that live until the operation is done or dropped, such as memory freed before that.
    // Dropped with the state lock held.
    std::vector<std::shared_ptr<void>> kept;
    Clock::time_point finished;

    bool done() const { return progress == Progress::Done; }
    // True for event records and waits: they order other work and do nothing themselves.
    bool only_orders() const { return !action && !condition && !pieces; }
    bool writes_to(const Range &range) const {
        return std::any_of(writes.begin(), writes.end(),
                           [&](const Range &written) { return written.overlaps(range); });
    }
};

using OperationPtr = std::shared_ptr<Operation>;

} // namespace soft
