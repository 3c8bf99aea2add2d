#pragma once

#include "race/race_shadow.h"

#include <string>

namespace soft {

// Returns the name of one side of a race: the driver function and, for a launch, the kernel.
std::string race_name(Function function);
std::string race_name(const Operation &operation);

// The client's names for both sides of a race and for the memory. If the client has no name for one
// of them, the text is empty.
struct RaceNames {
    std::string memory, later, earlier;
};

// The text of a race, in parts between which the client's names are inserted.
struct RaceText {
    struct Side {
        std::string who;   // e.g. "cuMemsetD8Async"
        std::string place; // e.g. " on stream 0x... (...)"
        std::string does;  // e.g. "writes bytes 0 to 8"
        RaceLabel label;
    };

    std::string memory;  // e.g. "device memory 0x..."
    std::string measure; // e.g. "allocation 71, 1024 bytes"
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
