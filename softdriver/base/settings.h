#pragma once

#include "base/fault.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace soft {

enum class Schedule { Eager, Lazy, Random, Replay };

// What happens when a data race, or a hazard in a kernel, is found.
enum class RaceMode { Off, Record, Print, Abort };

// Says whether cuMemFree of device memory waits for the device. With Chosen, the random schedule
// decides by its random generator, and the other schedules always wait.
enum class FreeWaits { Chosen, Always, Never };

// The checks inside kernels: the bits of Settings::checks.
enum Check : unsigned {
    check_race = 1, // races between the threads of a launch
    check_init = 2, // uses of values that nobody has written
    check_sync = 4, // wrong barriers, masks and mbarriers, and copies that nothing waits for
};

struct Settings {
    Schedule schedule = Schedule::Eager;
    uint64_t seed = 1;
    std::string script = "x"; // the choices of the schedule Replay: see explore/run.h
    int driver = 13000;       // what cuDriverGetVersion returns
    int capability = 90;      // the compute capability of the devices
    FreeWaits free_waits = FreeWaits::Chosen;
    int devices = 1;
    size_t memory = size_t(1) << 30;
    bool concurrent_managed = true;
    RaceMode races = RaceMode::Record;
    unsigned checks = 0;                 // the bits of Check that are on
    RaceMode hazards = RaceMode::Record; // what happens with hazards in kernels
    // Also count races whose second write stores the bytes that are there already.
    bool benign = false;
    // The number of warp instructions that one launch may execute; 0 means no limit.
    uint64_t instructions = 4000000000;
    uint64_t milliseconds = 0; // how long the pieces of one launch may take; 0 means no limit
    // The number of threads that run the blocks of a launch; 0 means the number of processors under
    // the eager schedule, and one thread under the others, which can be replayed.
    unsigned threads = 0;
    // Kernels may read beyond the end of shared memory, up to the next multiple of this number; the
    // first such read causes a warning.
    size_t shared_rounding = 1;
    bool print_kernel_faults = true;
    std::string explore; // folder of a program that is run in all orders; empty: none
    std::string report;  // folder for reports of processes; empty: none
    Faults faults;
};

// Applies "name=value,name=value" to settings. Returns an error text, which is empty on success.
// After an error the settings are unchanged.
std::string apply_settings(const char *text, Settings &settings);

// Returns the settings in the format of apply_settings(), without the faults.
std::string settings_text(const Settings &settings);

} // namespace soft
