#pragma once

#include "base/race_clock.h"
#include "base/range.h"
#include "base/script.h"

#include <set>
#include <string>
#include <vector>

// One run of a program under the schedule `replay`, as steps. A step is an operation that runs, or
// the host that goes on after it has looked at the device: a query answers, or a wait ends. What
// the host does up to its next look belongs to the same step, because it commutes with all
// operations except those that it submits.

namespace soft::explore {

// Who makes a step: the host, or a stream, numbered in the order of its first operation in the run.
using Actor = uint32_t;
constexpr Actor host = 0;

// What a step touches: bytes of memory, and marks. A mark is an address where no memory can be; it
// stands for something else that steps read or change, such as whether an operation is done.
struct Footprint {
    std::vector<Range> reads, writes;

    // Returns true if the order of the two steps matters: both touch a byte, and one changes it.
    bool conflicts(const Footprint &other) const;
    // Returns the footprint of the same step in another run: with all of the program's own memory
    // for each part of it.
    Footprint in_any_run() const;
    // Returns true if these can be footprints of one step in two runs.
    bool operator==(const Footprint &other) const;
};

// The address of memory that the driver does not know, such as a block of malloc, has this bit,
// because the memory may be somewhere else in each run.
constexpr uintptr_t of_program = uintptr_t(1) << 61;

constexpr uintptr_t first_mark = uintptr_t(0xfff) << 52;
// The marks: what host functions share with the host; the output of kernels; the memory of which
// `malloc` in kernels takes; whether the device works; the value of a conditional node (the n-th of
// the run); that an operation (the n-th of the run) is done.
constexpr Range mark_of_host{first_mark, 1}, mark_of_output{first_mark + 1, 1},
    mark_of_heap{first_mark + 2, 1};
constexpr Range mark_of_device(int ordinal) { return {first_mark + 16 + unsigned(ordinal), 1}; }
constexpr Range mark_of_condition(uint64_t condition) {
    return {first_mark + (uintptr_t(1) << 44) + condition, 1};
}
constexpr Range mark_of_end(uint64_t operation) { return {first_mark + 4096 + operation, 1}; }

struct Step {
    Actor actor = host;
    std::vector<Actor> options; // who could have made a step in this place, `actor` among them
    Footprint touched;
    // True if the step can run only while memory has some value. Steps that write this memory may
    // have kept it from running earlier.
    bool waits_for_value = false;
    std::vector<size_t> after; // earlier steps after which the program has ordered this one
    std::string name;          // the driver function, and the kernel
    RaceLabel label;           // the client's
    std::string what;          // the client's words for it, with the line of the program
    std::string stream;        // of an operation: the stream for reports
};

struct Run {
    std::vector<Step> steps;
    Script choices; // the choice of each step with several options
    // From this step on, another run has had the same steps in an equivalent order. If there is no
    // such step: the number of steps.
    size_t fresh = 0;
    bool waits_less = false;      // a call has gone on where a driver may wait
    bool stopped = false;         // the steps from `fresh` on cannot be repeated
    std::set<std::string> limits; // why not all orders can be explored
    std::string failure;          // a wait that never ends, or empty
    std::string wait;             // what the host waits for while nothing can run, or empty
    std::string misfit;           // how the run did not fit its script; empty if it did
};

} // namespace soft::explore
