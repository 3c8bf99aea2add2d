#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace soft {

// The report of this process, for `report=FOLDER`: two files in that folder. One contains events,
// with a JSON object in each line; the other contains numbers, and the process has mapped it. So
// the report is readable even if the process is killed. A process that never calls the driver has
// no report. README.md describes the format.

// Sets the folder. If it is empty, there is no report. Called once, before any other function here.
void report_to(const std::string &folder);

// True until the first call of the driver in this process; false if there is no report.
extern std::atomic<bool> report_is_due;
// The numbers of this process; null if there is no report. The first one counts calls.
extern std::atomic<std::atomic<uint64_t> *> report_numbers;
void begin_report();

// Counts a call. Every call of the driver begins with this.
inline void note_call() {
    if (report_is_due.load(std::memory_order_relaxed))
        begin_report();
    if (std::atomic<uint64_t> *numbers = report_numbers.load(std::memory_order_relaxed))
        numbers[0].fetch_add(1, std::memory_order_relaxed);
}

// Writes the numbers of live objects and of operations that have not run. Called at the end of a
// call, which holds the lock of the state.
void write_objects();
inline void note_objects() {
    if (report_numbers.load(std::memory_order_relaxed))
        write_objects();
}

// Counts a call of a function that is not implemented. `index` is the index of the function among
// all names.
void note_unsupported(const char *symbol, size_t index, bool first);

// Notes a call that a forked child must not make.
void note_forked(const char *symbol);

} // namespace soft
