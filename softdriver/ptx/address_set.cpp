#include "ptx/address_set.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

namespace soft::ptx {

BitSet::Slot &BitSet::free_slot(uintptr_t number) {
    size_t at = home(number);
    while (slots_[at].page)
        at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
}

BitSet::Page &BitSet::new_page(uintptr_t number) {
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

void BitSet::add_long(uintptr_t first, size_t count) {
    while (count) {
        uintptr_t offset = first % page_bits;
        Page &bits = page(first / page_bits);
        size_t here = std::min(count, size_t(page_bits - offset));
        first += here;
        count -= here;
        while (here) {
            size_t part = std::min(here, size_t(word_bits - offset % word_bits));
            bits[offset / word_bits] |= ones(part) << offset % word_bits;
            offset += part;
            here -= part;
        }
    }
}

namespace {

// Joins ranges that overlap or follow each other. They must be added in ascending order of their
// addresses.
struct Joined {
    std::vector<Accessed> ranges;
    uintptr_t begin = 0, end = 0; // the last range, which may grow

    void add(uintptr_t from, size_t count) {
        if (from > end) {
            finish();
            begin = from;
        }
        end = std::max(end, from + count);
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

// Returns the ranges of the numbers in these sets, multiplied by `scale`.
std::vector<Accessed> ranges_of(const std::vector<const BitSet *> &sets, size_t scale) {
    std::multimap<uintptr_t, const BitSet::Page *> pages;
    for (const BitSet *set : sets)
        for (const BitSet::Slot &slot : set->slots_)
            if (slot.page)
                pages.emplace(slot.number, slot.page.get());
    Joined joined;
    for (auto next = pages.begin(); next != pages.end();) {
        uintptr_t begin = next->first * BitSet::page_bits;
        const BitSet::Page *page = next->second;
        BitSet::Page both;
        for (auto last = pages.upper_bound(next->first); ++next != last; page = &both)
            std::transform(page->begin(), page->end(), next->second->begin(), both.begin(),
                           std::bit_or<uint64_t>());
        for (uint64_t bits : *page) {
            if (~bits == 0)
                joined.add(begin, BitSet::word_bits);
            else if (bits)
                join_word(joined, begin, bits);
            begin += BitSet::word_bits;
        }
    }
    joined.finish();
    for (Accessed &range : joined.ranges)
        range = {range.begin * scale, range.bytes * scale};
    return joined.ranges;
}

std::vector<Accessed> ranges_of(const std::vector<const AddressSet *> &sets) {
    std::vector<const BitSet *> words, bytes;
    for (const AddressSet *set : sets) {
        words.push_back(&set->words_);
        bytes.push_back(&set->bytes_);
    }
    std::vector<Accessed> of_words = ranges_of(words, AddressSet::word_bytes);
    std::vector<Accessed> of_bytes = ranges_of(bytes, 1), both;
    if (of_bytes.empty())
        return of_words;
    std::merge(of_words.begin(), of_words.end(), of_bytes.begin(), of_bytes.end(),
               std::back_inserter(both),
               [](const Accessed &a, const Accessed &b) { return a.begin < b.begin; });
    Joined joined;
    for (const Accessed &range : both)
        joined.add(range.begin, range.bytes);
    joined.finish();
    return joined.ranges;
}

} // namespace soft::ptx
