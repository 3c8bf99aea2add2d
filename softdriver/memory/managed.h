#pragma once

#include "memory/advice.h"

#include <memory>

namespace soft {

struct Stream;

// What managed memory has beside other memory.
struct Managed {
    Managed(char *user_address, size_t size, unsigned flags)
        : user(user_address), bytes(size), initial(flags), attached(flags) {}

    char *user; // where the host has it
    size_t bytes;
    unsigned initial, attached;   // CU_MEM_ATTACH_*
    std::weak_ptr<Stream> stream; // if attached to a single one
    bool closed = false;          // the host has no access
    AdviceMap advice;

    // Whether work in a stream might use it.
    bool visible(const Stream &stream);
};

// Devices without concurrent managed access take managed memory from the host while they work: from
// the submission until a synchronization or query has told the host that all is done. Otherwise
// these functions do nothing.

// The stream has been given work.
void close_managed(const Stream &stream);
// The memory is new, or attached anew.
void close_managed_if_busy(Managed &managed);
// The host has seen work finish. A stream that runs a host function is no work of a device.
void open_managed();

// Memory that the host and the driver have at different addresses; null if there is none.
char *map_twice(size_t bytes, char *&alias);

} // namespace soft
