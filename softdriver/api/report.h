#pragma once

#include <atomic>
#include <string>

namespace soft {

// The report of this process, for `report=FOLDER`: a file of its own in that folder, with one JSON
// object in each line. What happens is written at once, so that it is known however the process
// ends; numbers are written when it exits. A process that never calls the driver has no report.

// Sets the folder; empty: no report. Called once, before any other function here.
void report_to(const std::string &folder);

// True until the first call of the driver in this process; false if there is no report.
extern std::atomic<bool> report_is_due;
void begin_report();

// Notes the first call. Every call of the driver begins with this.
inline void note_use() {
    if (report_is_due.load(std::memory_order_relaxed))
        begin_report();
}

// Note the first call of a function that is not implemented, an image that cannot run here, a call
// that a forked child must not make, an error in a kernel, and a data race.
void note_unsupported(const char *symbol);
void note_refused_image(const std::string &why);
void note_forked(const char *symbol);
void note_kernel_fault(const std::string &text);
void note_race(const std::string &text);

// Writes the numbers of this moment. Returns false if there is no report.
bool write_numbers(bool at_exit);

} // namespace soft
