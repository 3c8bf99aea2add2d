#pragma once

#include "ptx/run.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace soft::ptx {

// A set of numbers. A page has a bit for each of its numbers. Pages are allocated when they are
// first used.
class BitSet {
  public:
    static constexpr uintptr_t page_bits = 1 << 14, word_bits = 64;
    using Page = std::array<uint64_t, page_bits / word_bits>;

    // Adds `count` numbers, at least 1, from `first` on.
    void add(uintptr_t first, size_t count) {
        uintptr_t offset = first % page_bits, bit = offset % word_bits;
        if (bit + count <= word_bits)
            page(first / page_bits)[offset / word_bits] |= ones(count) << bit;
        else
            add_long(first, count);
    }

  private:
    friend std::vector<Accessed> ranges_of(const std::vector<const BitSet *> &, size_t);

    // An entry of the hash table of pages. The entry of page `number` is at home(number) or behind.
    struct Slot {
        uintptr_t number = 0;
        std::unique_ptr<Page> page;
    };

    static uint64_t ones(size_t count) { return ~uint64_t{0} >> (word_bits - count); }
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
    void add_long(uintptr_t first, size_t count);

    std::vector<Slot> slots_{8}; // as many as a power of two, and at most half of them are used
    size_t pages_ = 0;
};

// A set of byte addresses. Nearly all accesses are of whole words, which need a bit each.
class AddressSet {
  public:
    // `bytes` is at least 1.
    void add(uintptr_t address, size_t bytes) {
        if ((address | bytes) % word_bytes == 0)
            words_.add(address / word_bytes, bytes / word_bytes);
        else
            bytes_.add(address, bytes);
    }

  private:
    friend std::vector<Accessed> ranges_of(const std::vector<const AddressSet *> &sets);
    static constexpr size_t word_bytes = 4;
    BitSet words_, bytes_;
};

// Returns the addresses that are in any of these sets, as sorted ranges that are separated by gaps.
std::vector<Accessed> ranges_of(const std::vector<const AddressSet *> &sets);

} // namespace soft::ptx
