// This file decodes and runs barrier.cluster, at which the blocks of a cluster wait for each other.

#include "ptx/decode_arithmetic.h"
#include "ptx/families.h"
#include "ptx/observer.h"

#include <algorithm>
#include <atomic>

namespace soft::ptx {

namespace {

void tell_of_cluster(const Warp &warp, const ClusterUse &use) {
    if (Observer *observer = warp.machine.observer.get())
        observer->uses_cluster(warp, use);
}

// The handler of barrier.cluster.arrive. Step::detail is 1 if it releases.
void arrive_at_cluster(Warp &warp, const Step &step) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    tell_of_cluster(warp, {step, warp.active, ClusterUse::Kind::Arrives, step.detail != 0});
    warp.block.cluster->arrive(warp, warp.active);
}

// Only the lanes wait that have arrived and whose barrier is not complete. The others go on.
void wait_for_cluster(Warp &warp, const Step &step) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    uint32_t waiting = warp.active & warp.block.arrived_at_cluster[warp.number];
    uint32_t passing = warp.active & ~waiting;
    if (passing)
        tell_of_cluster(warp, {step, passing, ClusterUse::Kind::Passes, false});
    if (!waiting)
        return;
    tell_of_cluster(warp, {step, waiting, ClusterUse::Kind::Waits, false});
    warp.active = waiting;
    warp.wait_barrier(barrier_of_cluster);
}

} // namespace

void Cluster::start(ThreadBlock &block) {
    blocks_.push_back(&block);
    block.arrived_at_cluster.assign(block.warps.size(), 0);
}

void Cluster::end(const ThreadBlock &block) {
    blocks_.erase(std::find(blocks_.begin(), blocks_.end(), &block));
}

void Cluster::arrive(const Warp &warp, uint32_t lanes) {
    warp.block.arrived_at_cluster[warp.number] |= lanes;
    complete_if_all();
}

void Cluster::complete_if_all() {
    uint32_t any = 0;
    for (const ThreadBlock *block : blocks_)
        for (size_t i = 0; i < block->warps.size(); i++) {
            any |= block->arrived_at_cluster[i];
            if (block->warps[i]->live & ~block->arrived_at_cluster[i])
                return;
        }
    if (!any)
        return;
    Machine &machine = blocks_.front()->machine;
    machine.progress++;
    if (machine.observer)
        machine.observer->completes_cluster(*this);
    for (ThreadBlock *block : blocks_) {
        block->stuck = false;
        std::fill(block->arrived_at_cluster.begin(), block->arrived_at_cluster.end(), 0);
        for (auto &warp : block->warps)
            warp->release(barrier_of_cluster);
    }
    if (machine.launch.prerequisite)
        pass_on_waits();
}

// Lets all warps learn which others have executed griddepcontrol.wait.
void Cluster::pass_on_waits() {
    bool waited = false;
    for (const ThreadBlock *block : blocks_)
        for (const auto &warp : block->warps)
            waited |= warp->waited;
    for (ThreadBlock *block : blocks_)
        for (auto &warp : block->warps)
            warp->waited = waited;
    blocks_.front()->machine.memory.select(waited);
}

bool Cluster::is_stuck() const {
    return std::all_of(blocks_.begin(), blocks_.end(),
                       [](const ThreadBlock *block) { return block->stuck; });
}

void decode_cluster_barrier(Decoder &decoder) {
    int kind = decoder.take_any({"arrive", "wait"});
    if (kind < 0)
        decoder.refuse(".arrive or .wait is missing");
    bool arrives = kind == 0;
    bool relaxed = arrives && decoder.take("relaxed");
    if (!relaxed)
        decoder.take(arrives ? "release" : "acquire");
    decoder.effect.kind = Effect::Kind::Barrier;
    decoder.effect.aligned = decoder.take("aligned");
    decoder.expect_operands(0);
    decoder.code().communicates = decoder.code().uses_cluster_barrier = true;
    decoder.step.detail = arrives && !relaxed;
    decoder.emit(arrives ? arrive_at_cluster : wait_for_cluster);
}

} // namespace soft::ptx
