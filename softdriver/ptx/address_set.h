#pragma once

#include "ptx/run.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace soft::ptx {

// A set of byte addresses. A page has a bit for each of its addresses. Pages are allocated when
// they are first used.
class AddressSet {
  public:
    static constexpr uintptr_t page_bytes = 1 << 16, word_bytes = 64;
    using Page = std::array<uint64_t, page_bytes / word_bytes>;

    // `bytes` is at least 1.
    void add(uintptr_t address, size_t bytes) {
        uintptr_t offset = address % page_bytes, bit = offset % word_bytes;
        if (bit + bytes <= word_bytes)
            page(address / page_bytes)[offset / word_bytes] |= ones(bytes) << bit;
        else
            add_long(address, bytes);
    }

  private:
    friend std::vector<Accessed> ranges_of(const std::vector<const AddressSet *> &sets);

    // An entry of the hash table of pages. The entry of page `number` is at home(number) or behind.
    struct Slot {
        uintptr_t number = 0;
        std::unique_ptr<Page> page;
    };

    static uint64_t ones(size_t count) { return ~uint64_t{0} >> (word_bytes - count); }
    size_t home(uintptr_t number) const {
        constexpr uint64_t golden = 0x9e3779b97f4a7c15;
        return size_t(number * golden >> 32) & (slots_.size() - 1);
    }
    Page &page(uintptr_t number) {
        for (size_t at = home(number);; at = (at + 1) & (slots_.size() - 1)) {
            if (!slots_[at].page)
                return new_page(number);
            if (slots_[at].number == number)
                return *slots_[at].page;
        }
    }
    Page &new_page(uintptr_t number);
    Slot &free_slot(uintptr_t number);
    void add_long(uintptr_t address, size_t bytes);

    std::vector<Slot> slots_{8}; // as many as a power of two, and at most half of them are used
    size_t pages_ = 0;
};

// Returns the addresses that are in any of these sets, as sorted ranges that are separated by gaps.
std::vector<Accessed> ranges_of(const std::vector<const AddressSet *> &sets);

} // namespace soft::ptx
