#include "check/copies.h"

#include <algorithm>

namespace soft::check {

namespace {

// The check distinguishes the copies of this many mbarriers in each block.
constexpr unsigned most_mbarriers = 96;
// No instruction can wait for all groups except more than this.
constexpr size_t most_ends = 256;

} // namespace

Roles::Roles(const ptx::Machine &machine) {
    using Actor = ptx::Effect::Actor;
    bool copies = false, bulk = false, products = false;
    for (const auto &code : machine.library.codes)
        for (size_t i = 0; code && i < code->effects.size(); i++) {
            const ptx::Effect &effect = code->effects[i];
            copies |= effect.actor == Actor::Copy;
            bulk |= effect.actor == Actor::Bulk;
            products |= effect.actor == Actor::Group;
            actors.acquire_in_block |= effect.acquires && effect.scope == ptx::Effect::Scope::Block;
        }
    unsigned warps = (machine.threads + warp_lanes - 1) / warp_lanes;
    actors.stride = warps * warp_lanes;
    if (copies)
        copies_ = ++actors.planes;
    if (bulk) {
        bulk_ = actors.planes + 1;
        actors.planes += 2;
        actors.others = most_mbarriers;
    }
    if (products)
        actors.of_warps = (warps + warp_lanes - 1) / warp_lanes * warp_lanes;
}

Roles::Role Roles::role(unsigned actor) const {
    if (actor >= actors.first_other())
        return Role::Mbarrier;
    if (actor >= actors.first_of_warps())
        return Role::Products;
    unsigned plane = actor / actors.stride;
    return !plane             ? Role::Thread
           : plane == copies_ ? Role::Copies
           : plane == bulk_   ? Role::BulkReads
                              : Role::BulkWrites;
}

unsigned Roles::owner(unsigned actor) const {
    return actor < actors.first_of_warps() ? actor % actors.stride
                                           : (actor - actors.first_of_warps()) * warp_lanes;
}

uint32_t Groups::begin(unsigned actor) {
    Group &group = groups_[actor];
    return group.last = group.open;
}

void Groups::commit(unsigned actor) {
    Group &group = groups_[actor];
    group.ends.push_back(group.open++);
    if (group.ends.size() > most_ends)
        group.ends.pop_front();
}

uint32_t Groups::waited(unsigned actor, size_t left) const {
    auto found = groups_.find(actor);
    if (found == groups_.end() || found->second.ends.size() <= left)
        return 0;
    return found->second.ends[found->second.ends.size() - 1 - left];
}

uint32_t Groups::close(unsigned actor) { return groups_[actor].open++; }

bool Groups::any_pending(const Clocks &clocks) const {
    return std::any_of(groups_.begin(), groups_.end(), [&](const auto &one) {
        return one.second.last && !clocks.is_known_to_block(one.first, one.second.last);
    });
}

Phases::Phase &Phases::look(uint64_t address, bool odd, const Roles &roles, const Clocks &clocks) {
    auto [found, is_new] = phases_.try_emplace(address);
    Phase &phase = found->second;
    if (is_new) {
        phase.actor = roles.of_mbarrier(made_++);
        phase.odd = odd;
    }
    if (phase.odd == odd)
        return phase;
    if (phase.last_copy == phase.time) {
        Told copies;
        copies.block = clocks.only(phase.actor, phase.time);
        copies.of = clocks.block();
        phase.arriving.add(copies);
    }
    phase.over.add(phase.arriving);
    phase.arriving = {};
    phase.odd = odd;
    phase.time++;
    return phase;
}

Phases::Phase *Phases::find(uint64_t address) {
    auto found = phases_.find(address);
    return found == phases_.end() ? nullptr : &found->second;
}

void Phases::forget(uint64_t address) {
    if (Phase *phase = find(address)) {
        // The actor stays, and its time advances, because no thread has learned that the copies in
        // the last phase are complete.
        phase->arriving = phase->over = {};
        phase->odd = false;
        phase->time++;
    }
}

} // namespace soft::check
