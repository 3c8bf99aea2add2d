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

// What work that is over has read and written, and the error that loses the device, if any.
struct Outcome {
    CUresult status = CUDA_SUCCESS;
    std::vector<Range> reads, writes, updates;
};

// Work that is done piece by piece, so that no other has to wait for its end.
struct Piecewise {
    virtual ~Piecewise() = default;
    // Does about so much of it, without the state lock; true if it is over.
    virtual bool advance(uint64_t steps) = 0;
    // It is over.
    virtual Outcome end() = 0;
};

// One piece of work in a stream. It may run when it is first in its stream, all that it waits for
// is done, and its condition holds. The action runs outside the state lock.
struct Operation {
    uint64_t number = 0; // order of issue, over all streams
    Progress progress = Progress::Queued;
    bool on_worker = false; // host functions run on a driver thread, never on a caller's
    bool released = false;  // a worker may take it whatever the schedule
    bool cancelled = false; // its present piece is the last
    uint64_t turn = 0;      // who has the lowest runs first
    std::shared_ptr<Stream> stream;
    std::vector<std::shared_ptr<Operation>> waits;
    std::vector<Range> reads, writes;
    std::vector<Range> updates; // atomic accesses, which do not race with each other
    bool unforeseen = false;    // all that is known at its end only
    bool legacy_rules = true;   // whether those of the legacy stream order it
    bool synchronizes = false;  // a value in memory that streams signal each other with, no data
    Function function = Function::Count;       // that submitted it
    std::shared_ptr<const std::string> kernel; // the name of the kernel that it launches
    RaceMark mark;
    RaceLabel label; // a client's own
    std::function<bool()> condition;
    std::function<void()> action;
    std::shared_ptr<Piecewise> pieces; // instead of an action
    // Goes when the operation is done or dropped, with the state lock held: memory freed meanwhile.
    std::vector<std::shared_ptr<void>> kept;
    Clock::time_point finished;

    bool done() const { return progress == Progress::Done; }
    // Records and waits of events order work, and are none themselves.
    bool only_orders() const { return !action && !condition && !pieces; }
    bool writes_to(const Range &range) const {
        return std::any_of(writes.begin(), writes.end(),
                           [&](const Range &written) { return written.overlaps(range); });
    }
};

using OperationPtr = std::shared_ptr<Operation>;

} // namespace soft
