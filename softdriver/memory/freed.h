#pragma once

#include "memory/allocation.h"

#include <deque>

namespace soft {

// Memory that was freed. Entries that a stream has not released yet can still be used by earlier
// work of streams. The most recent other entries are kept to describe stale addresses.
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
        bool there; // the memory has not been released yet
        std::shared_ptr<RaceShadow> shadow;

        bool holds(uintptr_t address) const { return address - begin < bytes; }
    };
    using EntryPtr = std::shared_ptr<Entry>;

    void add(const Allocation &allocation, Function free, bool there);
    // Marks the memory as released.
    void mark_released(uintptr_t begin);
    // The most recently freed memory that contains the address, or null.
    EntryPtr find(uintptr_t address) const;
    void clear() { entries_.clear(); }

  private:
    std::deque<EntryPtr> entries_;
};

// Describes where an address lies relative to live and freed memory. The text continues a sentence.
std::string describe_address(uintptr_t address);

} // namespace soft
