#include "ptx/memory.h"

namespace soft::ptx {

void Memory::drop_segments() {
    segments_.clear();
    for (Segment &known : sites_)
        known = {};
}

bool Memory::look_up(Segment &known, uintptr_t address, size_t bytes, bool of_texture) {
    auto holds = [&](const Segment &segment) {
        uintptr_t offset = address - segment.begin;
        return offset < segment.bytes && bytes <= segment.bytes - offset &&
               (of_texture || !segment.of_array);
    };
    auto after = segments_.upper_bound(address);
    if (after != segments_.begin() && holds(std::prev(after)->second)) {
        known = std::prev(after)->second;
        return true;
    }
    Segment found;
    if (!launch_.find || !launch_.find(address, found) || !holds(found))
        return false;
    segments_[found.begin] = found;
    known = found;
    return true;
}

} // namespace soft::ptx
