#pragma once

#include "memory/allocation.h"

#include <deque>

namespace soft {

// A list of memory that programs have freed. As long as a stream has not run the free of an entry,
// earlier work of streams may still use the memory. Of all other entries only the most recent ones
// are kept, to describe stale addresses.
class Freed {
  public:
    struct Entry {
        uintptr_t begin;
        size_t bytes;
        char *host;
        Device *device;
        PoolPtr pool;
        Function maker, free;
        uint64_t id;
        bool there; // the memory is still there: no stream has run the free yet
        std::shared_ptr<RaceShadow> shadow;

        bool holds(uintptr_t address) const { return address - begin < bytes; }
    };
    using EntryPtr = std::shared_ptr<Entry>;

    void add(const Allocation &allocation, Function free, bool there);
    // Marks the memory as released.
    void mark_released(uintptr_t begin);
    // Returns the most recently freed memory that contains the address, or null.
    EntryPtr find(uintptr_t address) const;
    void clear() { entries_.clear(); }

  private:
    std::deque<EntryPtr> entries_;
};

// Describes where an address lies relative to live and freed memory: "16 bytes beyond the end of
// ...". Sets `*at` to an address in the memory that the text names, or to 0.
std::string describe_address(uintptr_t address, uintptr_t *at = nullptr);
// Returns whether the address lies in freed memory, and in no live memory.
bool is_freed(uintptr_t address);
// Describes the memory that begins at the address.
std::string describe_memory(uintptr_t begin);

// Returns the address in hexadecimal, for such descriptions.
std::string address_text(uintptr_t address);

} // namespace soft
