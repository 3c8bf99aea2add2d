#pragma once

#include "memory/places.h"

#include <memory>

namespace soft {

struct Stream;

// State of an allocation of managed memory.
struct Managed {
    Managed(char *user_address, const char *alias, size_t size, unsigned flags)
        : user(user_address), host(alias), bytes(size), initial(flags), attached(flags),
          faults((size - 1) / block_bytes + 1) {
        alive++;
    }
    ~Managed() { alive--; }
    Managed(const Managed &) = delete;
    Managed &operator=(const Managed &) = delete;

    static size_t alive; // number of these objects

    char *user;       // the address that the program uses; null when the memory is unmapped
    const char *host; // the address at which the driver accesses the bytes
    size_t bytes;
    unsigned initial, attached;   // attachments (CU_MEM_ATTACH_*) at allocation and now
    std::weak_ptr<Stream> stream; // the stream to which the memory is attached, if any
    bool closed = false;          // true while the host has no access
    PageMap pages;
    std::vector<PageFaults> faults; // page faults of each block
    // The hash of each block that has copies on the host and on a device. If the hash changes, the
    // host has written the block.
    std::map<size_t, size_t> hashes;

    // Returns true if work of this stream may use the memory.
    bool visible(const Stream &stream);
};

// These functions do nothing unless the setting concurrent_managed is 0. Then the host has no
// access to managed memory from the submission of work that may use it until a synchronization or
// query has reported that all this work is done.

// Called after work was submitted to the stream. Takes away the host's access to the memory that
// the stream may use.
void close_managed(const Stream &stream);
// Called for new or newly attached memory. Takes away the host's access if a stream that may use
// the memory has work.
void close_managed_if_busy(Managed &managed);
// Called when the host has seen that work is done. Restores the host's access to all memory that no
// unfinished work may use. A running host function does not count as work.
void open_managed();

// Maps memory at two addresses. Returns the address for the program, at which a block begins, and
// sets `alias` to the address for the driver; returns null on failure. The driver needs a second
// address because it protects the program's pages, and asks the system which of them the program
// uses. With `forks`, forked children have the memory, too.
char *map_twice(size_t bytes, char *&alias, bool forks);

} // namespace soft
