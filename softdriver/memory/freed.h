#pragma once

#include "memory/allocation.h"

#include <deque>

namespace soft {

// Memory that was freed: what is in a stream's order still to be given back, and may be used by
// what comes before that, and the last of the rest, to tell what a stale address was.
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
        bool there; // it has not been given back
        std::shared_ptr<RaceShadow> shadow;

        bool holds(uintptr_t address) const { return address - begin < bytes; }
    };
    using EntryPtr = std::shared_ptr<Entry>;

    void add(const Allocation &allocation, Function free, bool there);
    // Memory that was freed and still there is not any more.
    void given_back(uintptr_t begin);
    // The last one freed that an address lies in, or null.
    EntryPtr find(uintptr_t address) const;
    void clear() { entries_.clear(); }

  private:
    std::deque<EntryPtr> entries_;
};

// What an address has to do with memory that is there or was: a text that begins in the middle of
// a sentence.
std::string describe_address(uintptr_t address);

} // namespace soft
