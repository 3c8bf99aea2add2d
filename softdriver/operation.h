#pragma once

#include "functions.h"
#include "race_clock.h"
#include "range.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace soft {

struct Stream;

using Clock = std::chrono::steady_clock;

enum class Progress { Queued, Running, Done };

// One piece of work in a stream. It may run when it is first in its stream, all that it waits for
// is done, and its condition holds. The action runs outside the state lock.
struct Operation {
    uint64_t number = 0; // order of issue, over all streams
    Progress progress = Progress::Queued;
    bool on_worker = false; // host functions run on a driver thread, never on a caller's
    bool released = false;  // a worker may take it whatever the schedule
    std::shared_ptr<Stream> stream;
    std::vector<std::shared_ptr<Operation>> waits;
    std::vector<Range> reads, writes;
    bool synchronizes = false; // a value in memory that streams signal each other with, no data
    Function function = Function::Count; // that submitted it
    RaceMark mark;
    std::function<bool()> condition;
    std::function<void()> action;
    // Goes when the operation is done or dropped, with the state lock held: memory freed meanwhile.
    std::vector<std::shared_ptr<void>> kept;
    Clock::time_point finished;

    bool done() const { return progress == Progress::Done; }
    // Records and waits of events order work, and are none themselves.
    bool only_orders() const { return !action && !condition; }
    bool writes_to(const Range &range) const {
        return std::any_of(writes.begin(), writes.end(),
                           [&](const Range &written) { return written.overlaps(range); });
    }
};

using OperationPtr = std::shared_ptr<Operation>;

} // namespace soft
