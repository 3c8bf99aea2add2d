#pragma once

#include "base/race_clock.h"
#include "base/waiting.h"

#include <cstdint>
#include <string>

namespace soft {

// The error of the last kernel that failed.
struct KernelFault {
    std::string text;      // what happened; empty if no kernel has failed
    uintptr_t address = 0; // an address in the memory that `text` names at its end, or 0
    RaceLabel label;       // of the launch
    int device = -1;       // the ordinal of the device that the launch ran on
    bool print = false;    // whether to write it to stderr
    bool told = true;

    void tell(); // reports the error, once
};

// If the last error of a kernel has not been reported, asks the client for its names of the memory
// and of the launch, then reports the error. Called at the end of a driver call. Releases the lock
// while the client answers.
void name_kernel_fault(Lock &lock);

} // namespace soft
