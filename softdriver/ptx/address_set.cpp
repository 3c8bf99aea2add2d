#include "ptx/address_set.h"

#include <algorithm>
#include <functional>
#include <map>

namespace soft::ptx {

AddressSet::Slot &AddressSet::free_slot(uintptr_t number) {
    size_t at = home(number);
    while (slots_[at].page)
        at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
}

AddressSet::Page &AddressSet::new_page(uintptr_t number) {
    if (2 * ++pages_ > slots_.size()) {
        std::vector<Slot> before(2 * slots_.size());
        before.swap(slots_);
        for (Slot &slot : before)
            if (slot.page)
                free_slot(slot.number) = std::move(slot);
    }
    Slot &slot = free_slot(number);
    slot = {number, std::make_unique<Page>()};
    return *slot.page;
}

void AddressSet::add_long(uintptr_t address, size_t bytes) {
    while (bytes) {
        uintptr_t offset = address % page_bytes;
        Page &bits = page(address / page_bytes);
        size_t here = std::min(bytes, size_t(page_bytes - offset));
        address += here;
        bytes -= here;
        while (here) {
            size_t part = std::min(here, size_t(word_bytes - offset % word_bytes));
            bits[offset / word_bytes] |= ones(part) << offset % word_bytes;
            offset += part;
            here -= part;
        }
    }
}

namespace {

// Joins bytes that follow each other to ranges.
struct Joined {
    std::vector<Accessed> ranges;
    uintptr_t begin = 0, end = 0; // the last range, which may grow

    void add(uintptr_t from, size_t bytes) {
        if (from != end) {
            finish();
            begin = from;
        }
        end = from + bytes;
    }
    void finish() {
        if (begin != end)
            ranges.push_back({begin, end - begin});
    }
};

void join_word(Joined &joined, uintptr_t begin, uint64_t bits) {
    for (uintptr_t at = begin; bits;) {
        unsigned gap = unsigned(__builtin_ctzll(bits));
        bits >>= gap;
        unsigned length = unsigned(__builtin_ctzll(~bits)); // less than 64: not all bits are set
        joined.add(at + gap, length);
        bits >>= length;
        at += gap + length;
    }
}

} // namespace

std::vector<Accessed> ranges_of(const std::vector<const AddressSet *> &sets) {
    std::multimap<uintptr_t, const AddressSet::Page *> pages;
    for (const AddressSet *set : sets)
        for (const AddressSet::Slot &slot : set->slots_)
            if (slot.page)
                pages.emplace(slot.number, slot.page.get());
    Joined joined;
    for (auto next = pages.begin(); next != pages.end();) {
        uintptr_t begin = next->first * AddressSet::page_bytes;
        const AddressSet::Page *page = next->second;
        AddressSet::Page both;
        for (auto last = pages.upper_bound(next->first); ++next != last; page = &both)
            std::transform(page->begin(), page->end(), next->second->begin(), both.begin(),
                           std::bit_or<uint64_t>());
        for (uint64_t bits : *page) {
            if (~bits == 0)
                joined.add(begin, AddressSet::word_bytes);
            else if (bits)
                join_word(joined, begin, bits);
            begin += AddressSet::word_bytes;
        }
    }
    joined.finish();
    return joined.ranges;
}

} // namespace soft::ptx
