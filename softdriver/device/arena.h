#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace soft {

// The address space of one device's memory. The host cannot access these addresses; the driver
// accesses the bytes through an alias at a fixed distance. allocate() returns ascending addresses,
// and begins again at the first address only when the whole reservation has been used, so that a
// stale pointer stays invalid as long as possible.
class Arena {
  public:
    // Reserves address space for a device of this capacity. Returns false if the process cannot get
    // enough address space.
    bool reserve(size_t capacity);
    bool reserved() const { return begin_ != 0; }
    bool contains(uintptr_t address) const {
        return address >= begin_ && address - begin_ < bytes_;
    }

    // Allocates memory and fills it with the byte `fresh_memory`. Returns 0 if no address is free.
    uintptr_t allocate(size_t bytes);
    // Marks the addresses of an allocation as free, but keeps the bytes.
    void release(uintptr_t address);
    // Returns the memory at these addresses to the system.
    void discard(uintptr_t address, size_t bytes);

    char *alias(uintptr_t address) const { return alias_ + (address - begin_); }

  private:
    uintptr_t find_gap(size_t bytes);
    void fill(uintptr_t address, size_t bytes);
    // Finds the pages that contain bytes of this range and no bytes of neighbouring allocations.
    void own_pages(uintptr_t address, size_t bytes, uintptr_t &begin, uintptr_t &end) const;

    uintptr_t begin_ = 0;
    size_t bytes_ = 0;
    char *alias_ = nullptr;
    uintptr_t cursor_ = 0;
    std::map<uintptr_t, size_t> taken_; // rounded size of each allocation, by address
};

constexpr unsigned char fresh_memory = 0xCD;

// Maps fresh pages that use no memory until they are written. Returns null if there are no more
// addresses.
char *map_pages(size_t bytes, int protection);
// Excludes the memory from core dumps, and from forked children, which cannot use the driver
// anyway.
void keep_private(char *memory, size_t bytes);

} // namespace soft
