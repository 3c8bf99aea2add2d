#include "ptx/touched.h"

#include <algorithm>

namespace soft::ptx {

void Touched::add_long(Place &place, uintptr_t address, size_t bytes) {
    while (bytes) {
        size_t part = std::min(bytes, 64 - size_t(address % 64));
        add(place, address, part);
        address += part;
        bytes -= part;
    }
}

std::vector<Accessed> Touched::ranges() const {
    std::vector<uintptr_t> numbers;
    for (auto &page : pages_)
        numbers.push_back(page.first);
    std::sort(numbers.begin(), numbers.end());
    std::vector<Accessed> found;
    auto join = [&](uintptr_t begin, size_t bytes) {
        if (!found.empty() && found.back().begin + found.back().bytes == begin)
            found.back().bytes += bytes;
        else
            found.push_back({begin, bytes});
    };
    for (uintptr_t number : numbers) {
        uintptr_t begin = number * page_bytes;
        for (uint64_t bits : pages_.at(number)) {
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
