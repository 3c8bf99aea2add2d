#include "ptx/address_set.h"

#include <algorithm>

namespace soft::ptx {

void AddressSet::add_long(Place &place, uintptr_t address, size_t bytes) {
    while (bytes) {
        size_t part = std::min(bytes, 64 - size_t(address % 64));
        add(place, address, part);
        address += part;
        bytes -= part;
    }
}

std::vector<Accessed> ranges_of(const std::vector<const AddressSet *> &sets) {
    std::vector<uintptr_t> numbers;
    for (const AddressSet *set : sets)
        for (auto &page : set->pages_)
            numbers.push_back(page.first);
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    std::vector<Accessed> found;
    auto join = [&](uintptr_t begin, size_t bytes) {
        if (!found.empty() && found.back().begin + found.back().bytes == begin)
            found.back().bytes += bytes;
        else
            found.push_back({begin, bytes});
    };
    for (uintptr_t number : numbers) {
        uintptr_t begin = number * AddressSet::page_bytes;
        AddressSet::Page page{};
        for (const AddressSet *set : sets)
            if (auto found = set->pages_.find(number); found != set->pages_.end())
                for (size_t i = 0; i < page.size(); i++)
                    page[i] |= found->second[i];
        for (uint64_t bits : page) {
            for (unsigned at = 0; bits;) {
                unsigned gap = unsigned(__builtin_ctzll(bits));
                bits >>= gap;
                unsigned length = ~bits ? unsigned(__builtin_ctzll(~bits)) : 64;
                join(begin + at + gap, length);
                bits = length < 64 ? bits >> length : 0;
                at += gap + length;
            }
            begin += 64;
        }
    }
    return found;
}

} // namespace soft::ptx
