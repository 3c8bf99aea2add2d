#include "check/proxies.h"

#include <algorithm>

namespace soft::check {

namespace {

constexpr size_t most_fences = 16; // of each warp

} // namespace

void ProxyFences::add(Clocks &clocks, unsigned warp, uint32_t lanes, ptx::Space space) {
    Fence fence;
    fence.lanes = lanes;
    for (unsigned lane = 0; lane < warp_lanes; lane++)
        fence.times[lane] = clocks.now(warp * warp_lanes + lane);
    fence.known_behind = fence.times;
    fence.others = clocks.tell_others(warp, lanes);
    fence.shared = space != ptx::Space::Global;
    fence.global = space != ptx::Space::Shared;
    std::deque<Fence> &fences = warps_[warp];
    if (fences.size() == most_fences) {
        // The oldest fence is dropped. Threads that know it are treated as if they knew the next
        // one, so that no race is reported wrongly.
        fences[1].known_behind = fences[0].known_behind;
        fences[1].lanes |= fences[0].lanes;
        fences[1].shared |= fences[0].shared;
        fences[1].global |= fences[0].global;
        fences.pop_front();
    }
    fences.push_back(std::move(fence));
}

// Calls `act` with each fence that comes before the times `known`, and with the lanes that executed
// it before these times.
template <class Act>
void ProxyFences::for_each_known(const Clocks::Times &known, bool shared, Act act) const {
    for (unsigned warp = 0; warp < warps_.size(); warp++)
        for (const Fence &fence : warps_[warp]) {
            uint32_t lanes = 0;
            for (uint32_t left = fence.lanes; left; left &= left - 1) {
                unsigned lane = unsigned(__builtin_ctz(left));
                if (known[warp * warp_lanes + lane] > fence.known_behind[lane])
                    lanes |= 1u << lane;
            }
            if (lanes && (shared ? fence.shared : fence.global))
                act(warp, fence, lanes);
        }
}

Clocks::Times ProxyFences::fenced(const Clocks::Times &known, uint32_t block, bool shared) const {
    Clocks::Times fenced(known.size());
    for_each_known(known, shared, [&](unsigned warp, const Fence &fence, uint32_t lanes) {
        for (uint32_t left = lanes; left; left &= left - 1) {
            unsigned lane = unsigned(__builtin_ctz(left));
            uint32_t &time = fenced[warp * warp_lanes + lane];
            time = std::max(time, fence.times[lane]);
        }
        const Epochs *others = fence.others.find(block);
        for (size_t i = 0; others && i < fenced.size(); i++)
            fenced[i] = std::max(fenced[i], others->all);
        for (size_t i = 0; others && i < others->later.size(); i++) {
            auto [actor, time] = others->later[i];
            fenced[actor] = std::max(fenced[actor], time);
        }
    });
    return fenced;
}

bool ProxyFences::fenced(const Clocks::Times &known, uint32_t block, unsigned thread,
                         uint32_t epoch) const {
    bool found = false;
    for_each_known(known, false, [&](unsigned, const Fence &fence, uint32_t) {
        const Epochs *others = fence.others.find(block);
        found = found || (others && others->of(thread) >= epoch);
    });
    return found;
}

} // namespace soft::check
