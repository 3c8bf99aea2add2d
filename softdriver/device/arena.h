#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace soft {

// The addresses of one device's memory. The host cannot touch them: they are reserved without any
// access, and the bytes live in a hidden alias at a fixed distance. Addresses are handed out in
// one direction and come back only when the whole reservation has been used up, so that a stale
// pointer stays an error for as long as possible.
class Arena {
  public:
    // Reserves address space for a device of this capacity; false if there is none.
    bool reserve(size_t capacity);
    bool reserved() const { return begin_ != 0; }
    bool contains(uintptr_t address) const {
        return address >= begin_ && address - begin_ < bytes_;
    }

    // 0 when there is no gap. The memory is filled with a pattern.
    uintptr_t allocate(size_t bytes);
    // The address is dead from now on; its memory is given back by discard().
    void release(uintptr_t address);
    void discard(uintptr_t address, size_t bytes);

    char *alias(uintptr_t address) const { return alias_ + (address - begin_); }

  private:
    uintptr_t find_gap(size_t bytes);
    void fill(uintptr_t address, size_t bytes);
    // The pages that only this range touches.
    void own_pages(uintptr_t address, size_t bytes, uintptr_t &begin, uintptr_t &end) const;

    uintptr_t begin_ = 0;
    size_t bytes_ = 0;
    char *alias_ = nullptr;
    uintptr_t cursor_ = 0;
    std::map<uintptr_t, size_t> taken_; // by address, sizes rounded up
};

constexpr unsigned char fresh_memory = 0xCD;

} // namespace soft
