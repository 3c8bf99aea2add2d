#pragma once

#include "race_shadow.h"

#include <string>

namespace soft {

// Who raced, in words: a driver function, and the kernel that it launched.
std::string race_name(Function function);
std::string race_name(const Operation &operation);

// Reports in words.
std::string race_of_operations(const RaceShadow &memory, const Operation &later, const Range &range,
                               RaceUse use, const RaceConflict &earlier);
std::string race_with_host_write(const RaceShadow &memory, const Operation &operation,
                                 const Range &range, RaceUse use);
std::string race_with_free(const RaceShadow &memory, Function free, uint64_t next_operation,
                           const RaceConflict &user);

} // namespace soft
