#include "memory/saved.h"

#include "api/state.h"

#include <cstring>

namespace soft {

void SavedMemory::save() {
    saved_.clear();
    for (const auto &[begin, memory] : state().allocations) {
        bool ours = memory.kind != MemoryKind::Registered && !memory.reservation &&
                    !memory.of_others && !memory.sharing && memory.host;
        if (ours)
            saved_.push_back({begin, memory.id, {memory.host, memory.host + memory.bytes}});
    }
}

void SavedMemory::restore() const {
    for (const Saved &saved : saved_) {
        auto found = state().allocations.find(saved.begin);
        if (found != state().allocations.end() && found->second.id == saved.id)
            std::memcpy(found->second.host, saved.bytes.data(), saved.bytes.size());
    }
}

} // namespace soft
