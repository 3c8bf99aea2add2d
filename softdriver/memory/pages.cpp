#include "memory/pages.h"

#include "memory/allocation.h"

#include <algorithm>

namespace soft {
namespace {

bool same(const CUmemLocation &one, const CUmemLocation &other) {
    return one.type == other.type && one.id == other.id;
}

} // namespace

bool PageState::operator==(const PageState &other) const {
    return read_mostly == other.read_mostly && same(preferred, other.preferred) &&
           same(prefetched, other.prefetched) && accessed_by == other.accessed_by &&
           place == other.place && copies == other.copies && last_use == other.last_use;
}

std::map<size_t, PageState>::iterator PageMap::split(size_t offset) {
    auto next = stretches_.upper_bound(offset);
    auto holding = std::prev(next);
    if (holding->first == offset)
        return holding;
    return stretches_.emplace_hint(next, offset, holding->second);
}

// Joins equal stretches from the one before `begin` to the one at `end`.
void PageMap::join(size_t begin, size_t end) {
    auto stretch = stretches_.find(begin);
    if (stretch != stretches_.begin())
        --stretch;
    for (auto next = std::next(stretch); next != stretches_.end() && next->first <= end;) {
        if (next->second == stretch->second)
            next = stretches_.erase(next);
        else
            stretch = next++;
    }
}

void PageMap::change(size_t begin, size_t end, const Edit &edit) {
    auto last = split(end);
    for (auto stretch = split(begin); stretch != last; ++stretch)
        edit(stretch->first, std::next(stretch)->first, stretch->second);
    join(begin, end);
}

void PageMap::visit(size_t begin, size_t end, const Look &look) const {
    auto stretch = std::prev(stretches_.upper_bound(begin));
    while (stretch != stretches_.end() && stretch->first < end) {
        auto next = std::next(stretch);
        size_t stop = next == stretches_.end() ? end : std::min(end, next->first);
        look(std::max(begin, stretch->first), stop, stretch->second);
        stretch = next;
    }
}

CUresult find_pages(CUdeviceptr address, size_t bytes, Pages &pages) {
    const Allocation *allocation = bytes ? find_range(address, bytes) : nullptr;
    if (!allocation || !allocation->managed)
        return CUDA_ERROR_INVALID_VALUE;
    size_t offset = address - allocation->begin;
    pages.managed = allocation->managed;
    pages.begin = offset / page_bytes * page_bytes;
    pages.end = whole_pages(offset + bytes);
    return CUDA_SUCCESS;
}

} // namespace soft
