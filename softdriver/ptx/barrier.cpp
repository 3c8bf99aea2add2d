#include "ptx/machine.h"
#include "ptx/observer.h"

// This file implements the barriers of a thread block.

namespace soft::ptx {

namespace {

// Returns how many threads of a warp a barrier counts. If all live lanes have arrived, it counts 32
// threads, because hardware counts whole warps, including lanes that have ended.
unsigned threads_of(uint32_t arrived, uint32_t live) {
    return (live & ~arrived) == 0 ? unsigned(warp_size) : unsigned(__builtin_popcount(arrived));
}

} // namespace

void ThreadBlock::arrive(unsigned number_of_barrier, unsigned expected, const Warp &warp,
                         uint32_t lanes, uint32_t holds) {
    Barrier &barrier = barriers[number_of_barrier];
    if (!barrier.used) {
        barrier.arrived.assign(warps.size(), 0);
        barrier.trues = barrier.count = 0;
        barrier.used = true;
    }
    barrier.expected = expected;
    barrier.arrived[warp.number] |= lanes;
    barrier.count += unsigned(__builtin_popcount(lanes));
    barrier.trues += unsigned(__builtin_popcount(lanes & holds));
    complete_if_all(number_of_barrier);
}

void ThreadBlock::complete_if_all(unsigned number_of_barrier) {
    Barrier &barrier = barriers[number_of_barrier];
    if (!barrier.used)
        return;
    // Fast path: some lanes have not arrived. `count` is never less than the number of lanes that
    // have arrived, because it counts each of them at least once.
    if (!barrier.expected && barrier.count < live)
        return;
    unsigned arrived = 0;
    bool all = true;
    for (size_t i = 0; i < warps.size(); i++) {
        if (barrier.arrived[i])
            arrived += threads_of(barrier.arrived[i], warps[i]->live);
        all = all && !(warps[i]->live & ~barrier.arrived[i]);
    }
    if (barrier.expected ? arrived < barrier.expected : !all)
        return;
    barrier.used = false;
    machine.progress++;
    barrier.last_trues = barrier.trues;
    barrier.last_count = barrier.count;
    if (machine.observer)
        machine.observer->completes(*this, number_of_barrier);
    if (machine.launch.prerequisite)
        for (size_t i = 0; i < warps.size(); i++)
            if (barrier.arrived[i])
                pass_on_wait(*warps[i]);
    for (auto &warp : warps)
        warp->release(number_of_barrier);
}

void ThreadBlock::pass_on_wait(Warp &warp) const {
    for (const auto &other : warps)
        warp.waited |= other->waited;
    machine.memory.select(warps[order_[turn_]]->waited);
}

void ThreadBlock::threads_ended(unsigned threads) {
    live -= threads;
    for (unsigned i = 0; i < barriers_of_block; i++)
        complete_if_all(i);
    if (cluster)
        cluster->complete_if_all();
}

// Called when no thread of the block can run. Returns whether other blocks of the cluster can still
// complete the barrier for which some of them wait.
bool ThreadBlock::waits_for_cluster() {
    stuck = true;
    return cluster && !cluster->is_stuck();
}

std::string ThreadBlock::deadlock() const {
    std::string text = "kernel '" + machine.launch.kernel->name +
                       "' hangs: every thread of block (" + std::to_string(index[0]) + ", " +
                       std::to_string(index[1]) + ", " + std::to_string(index[2]) +
                       ") has ended or waits";
    for (auto &warp : warps)
        if (warp->live)
            return text + ", " + warp->what_it_waits_for();
    return text;
}

} // namespace soft::ptx
