#pragma once

#include "race/race_shadow.h"

#include <string>

namespace soft {

// The name of one side of a race: the driver function, and the kernel if it launched one.
std::string race_name(Function function);
std::string race_name(const Operation &operation);

// The client's names for both sides of a race and for the memory; empty if it has none.
struct RaceNames {
    std::string memory, later, earlier;
};

// The text of a race in parts, so that the client's names can be inserted.
struct RaceText {
    struct Side {
        std::string who;   // "cuMemsetD8Async"
        std::string place; // " on stream 0x... (...)"
        std::string does;  // "writes bytes 0 to 8"
        RaceLabel label;
    };

    std::string memory;  // "device memory 0x..."
    std::string measure; // "allocation 71, 1024 bytes"
    uintptr_t address = 0;
    Side later, earlier;
    std::string verdict;

    std::string told(const RaceNames &names) const;
};

RaceText race_of_operations(const RaceShadow &memory, const Operation &later, const Range &range,
                            RaceUse use, const RaceConflict &earlier);
RaceText race_with_host_write(const RaceShadow &memory, const Operation &operation,
                              const Range &range, RaceUse use);
RaceText race_with_free(const RaceShadow &memory, Function free, uint64_t next_operation,
                        const RaceConflict &user);

} // namespace soft
