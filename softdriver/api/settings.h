#pragma once

#include "api/fault.h"
#include "race/race_record.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace soft {

enum class Schedule { Eager, Lazy, Random };

// Whether cuMemFree waits for the device. Chosen: by the schedule.
enum class FreeWaits { Chosen, Always, Never };

struct Settings {
    Schedule schedule = Schedule::Eager;
    uint64_t seed = 1;
    int driver = 13000; // what cuDriverGetVersion says
    FreeWaits free_waits = FreeWaits::Chosen;
    int devices = 1;
    size_t memory = size_t(1) << 30;
    bool concurrent_managed = true;
    RaceMode races = RaceMode::Record;
    uint64_t instructions = 4000000000; // of warps, that a launch may execute; 0: any number
    bool print_kernel_faults = true;
    Faults faults;
};

// Applies "name=value,name=value" to settings. Returns why it could not, or an empty text; settings
// are only changed when all of the text is good.
std::string apply_settings(const char *text, Settings &settings);

// The settings as such a text, without the faults.
std::string settings_text(const Settings &settings);

} // namespace soft
