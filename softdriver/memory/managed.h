#pragma once

#include "memory/advice.h"

#include <memory>

namespace soft {

struct Stream;

// State of an allocation of managed memory.
struct Managed {
    Managed(char *user_address, size_t size, unsigned flags)
        : user(user_address), bytes(size), initial(flags), attached(flags) {}

    char *user; // the address that the program uses
    size_t bytes;
    unsigned initial, attached;   // CU_MEM_ATTACH_*, at the allocation and now
    std::weak_ptr<Stream> stream; // the stream, if attached to a single one
    bool closed = false;          // true while the host has no access
    AdviceMap advice;

    // True if work of this stream may use the memory.
    bool visible(const Stream &stream);
};

// Without concurrent managed access, the host has no access to managed memory while the device
// works: from the submission of work until a synchronization or query has reported that all of it
// is done. With concurrent access these functions do nothing.

// Called after work was submitted to the stream: takes away the host's access.
void close_managed(const Stream &stream);
// Called for new or newly attached memory.
void close_managed_if_busy(Managed &managed);
// Called when the host has seen that work is done: returns access to all memory that is not in use.
// A running host function does not count as use.
void open_managed();

// Maps memory at two addresses: one for the program, and `alias` for the driver. Null on failure.
char *map_twice(size_t bytes, char *&alias);

} // namespace soft
