#pragma once

#include "functions.h"
#include "race_record.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace soft {

enum class Schedule { Eager, Lazy, Random };

// "The nth call of this function, counted from now, returns this status."
struct Fault {
    Function function;
    uint64_t nth;
    CUresult status;
    uint64_t seen = 0;
};

struct Settings {
    Schedule schedule = Schedule::Eager;
    uint64_t seed = 1;
    int devices = 1;
    size_t memory = size_t(1) << 30;
    bool concurrent_managed = true;
    RaceMode races = RaceMode::Record;
    std::vector<Fault> faults;
};

// Applies "name=value,name=value" to settings. Returns why it could not, or an empty text; settings
// are only changed when all of the text is good.
std::string apply_settings(const char *text, Settings &settings);

} // namespace soft
