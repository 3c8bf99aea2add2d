#pragma once

#include "ptx/run.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace soft::ptx {

// A set of byte addresses. A page has a bit for each of its addresses. Pages are allocated when
// they are first used.
class AddressSet {
  public:
    static constexpr uintptr_t page_bytes = 4096;
    using Page = std::array<uint64_t, page_bytes / 64>;
    // The page that was used last. The caller of add() keeps it between calls, so that a call for
    // the same page needs no look-up.
    struct Place {
        uintptr_t number = ~uintptr_t{0};
        uint64_t *bits = nullptr;
    };

    void add(Place &place, uintptr_t address, size_t bytes) {
        uintptr_t offset = address % page_bytes;
        if (address / page_bytes != place.number)
            place = {address / page_bytes, pages_[address / page_bytes].data()};
        if (offset % 64 + bytes <= 64)
            place.bits[offset / 64] |= (~uint64_t{0} >> (64 - bytes)) << offset % 64;
        else
            add_long(place, address, bytes);
    }

  private:
    friend std::vector<Accessed> ranges_of(const std::vector<const AddressSet *> &sets);
    void add_long(Place &place, uintptr_t address, size_t bytes);

    std::unordered_map<uintptr_t, Page> pages_;
};

// Returns the addresses that are in any of these sets, as sorted ranges that are separated by gaps.
std::vector<Accessed> ranges_of(const std::vector<const AddressSet *> &sets);

} // namespace soft::ptx
