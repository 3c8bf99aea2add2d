#include "check/unfinished.h"

#include <algorithm>

namespace soft::check {

namespace {

constexpr size_t most_copies = 64;   // copies in a group that are kept
constexpr size_t most_handed = 4096; // copies of an mbarrier that are kept

} // namespace

const Mbarriers::State *Mbarriers::find(uint64_t address) const {
    auto found = states_.find(address);
    return found == states_.end() ? nullptr : &found->second;
}

void Mbarriers::set(uint64_t address, bool valid, const Done &done) {
    State &state = states_[address];
    state.valid = valid;
    state.last = done;
    // Copies of an earlier mbarrier at this address do not belong to the present phase.
    state.phase++;
    state.odd = false;
}

void Mbarriers::look(uint64_t address, bool odd) {
    State &state = states_[address];
    state.phase += state.odd != odd;
    state.odd = odd;
}

void UnfinishedCopies::begin(const Done &copy) {
    std::vector<Done> &open = threads_[copy.thread].open;
    auto same = [&](const Done &other) { return other.place == copy.place; };
    if (open.size() < most_copies && std::none_of(open.begin(), open.end(), same))
        open.push_back(copy);
}

void UnfinishedCopies::commit(unsigned thread) {
    auto found = threads_.find(thread);
    if (found == threads_.end())
        return; // a group without copies need not be kept, if no copy is before it
    Thread &of = found->second;
    of.groups.push_back(std::move(of.open));
    of.open.clear();
}

void UnfinishedCopies::await(unsigned thread, size_t groups_left, bool also_open) {
    auto found = threads_.find(thread);
    if (found == threads_.end())
        return;
    Thread &of = found->second;
    while (of.groups.size() > groups_left)
        of.groups.pop_front();
    if (also_open)
        of.open.clear();
}

void UnfinishedCopies::hand_over(unsigned thread, uint64_t mbarrier, uint64_t phase) {
    commit(thread);
    auto found = threads_.find(thread);
    if (found == threads_.end())
        return;
    for (const std::vector<Done> &group : found->second.groups)
        for (const Done &copy : group)
            begin(copy, mbarrier, phase);
    threads_.erase(found);
}

void UnfinishedCopies::begin(const Done &copy, uint64_t mbarrier, uint64_t phase) {
    std::vector<Handed> &copies = handed_[mbarrier];
    if (copies.size() < most_handed)
        copies.push_back({copy, phase});
}

void UnfinishedCopies::ended(uint64_t mbarrier, uint64_t phase) {
    auto found = handed_.find(mbarrier);
    if (found == handed_.end())
        return;
    std::vector<Handed> &copies = found->second;
    copies.erase(std::remove_if(copies.begin(), copies.end(),
                                [&](const Handed &one) { return one.phase < phase; }),
                 copies.end());
}

void UnfinishedCopies::for_each(const std::function<void(const Done &)> &take) const {
    for (const auto &thread : threads_) {
        for (const std::vector<Done> &group : thread.second.groups)
            for (const Done &copy : group)
                take(copy);
        for (const Done &copy : thread.second.open)
            take(copy);
    }
    for (const auto &mbarrier : handed_)
        for (const Handed &one : mbarrier.second)
            take(one.copy);
}

} // namespace soft::check
