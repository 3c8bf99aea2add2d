#include "ptx/machine.h"
#include "ptx/observer.h"

#include <algorithm>
#include <numeric>

namespace soft::ptx {

namespace {

// The number of steps that a warp runs before the next warp runs. A warp that made no progress in
// its last slice runs fewer steps, because it probably waits for other warps.
constexpr uint64_t warp_slice = 4096, spinning_warp_slice = 256;

} // namespace

ThreadBlock::ThreadBlock(Machine &machine) : machine(machine) {
    shared.resize(machine.shared_room);
    for (unsigned begin = 0; begin < machine.threads; begin += warp_size) {
        order_.push_back(unsigned(warps.size()));
        warps.push_back(std::make_unique<Warp>(machine, *this));
    }
}

void ThreadBlock::start(uint64_t number_in_grid) {
    number = number_in_grid;
    spread(number, machine.launch.grid, index);
    live = machine.threads;
    std::fill(shared.begin(), shared.end(), fresh_byte);
    if (machine.launch.kernel->uses_reserved_shared)
        std::fill_n(shared.begin() + machine.reserved_begin, reserved_shared_bytes, 0);
    for (Barrier &barrier : barriers)
        barrier = {};
    // Checks find the same in independent blocks, whichever machine runs them.
    Random own(machine.launch.seed + number);
    bool same = machine.observer && machine.launch.has_independent_blocks();
    if (same)
        std::iota(order_.begin(), order_.end(), 0u);
    for (size_t i = order_.size(); i > 1; i--)
        std::swap(order_[i - 1], order_[(same ? own : machine.random).below(i)]);
    turn_ = 0;
    slice_left_ = 0;
    spins = allows = held = stuck = false;
    spins_.assign(warps.size(), false);
    for (unsigned i = 0; i < warps.size(); i++) {
        unsigned lanes = std::min(machine.threads - i * warp_size, unsigned(warp_size));
        warps[i]->start(i, ~uint32_t{0} >> (warp_size - lanes));
    }
}

uint64_t ThreadBlock::run(uint64_t steps) {
    uint64_t left = steps;
    size_t unable = 0; // number of warps in a row that could not run
    while (left && live && !held && !machine.failed() && !machine.tired()) {
        if (!slice_left_) {
            slice_left_ = spins_[turn_] ? spinning_warp_slice : warp_slice;
            progress_before_ = machine.progress;
        }
        uint64_t wanted = std::min(left, slice_left_);
        Warp &warp = *warps[order_[turn_]];
        if (machine.launch.prerequisite)
            machine.memory.select(warp.waited);
        uint64_t done = warp.run(wanted);
        left -= done;
        slice_left_ = done < wanted ? 0 : slice_left_ - done;
        unable = done ? 0 : unable + 1;
        if (unable == warps.size()) {
            if (waits_for_cluster())
                break;
            if (machine.observer)
                machine.observer->hangs(*this);
            machine.fail(CUDA_ERROR_LAUNCH_TIMEOUT, deadlock());
            break;
        }
        if (!slice_left_) {
            spins_[turn_] = machine.progress == progress_before_;
            turn_ = (turn_ + 1) % warps.size();
        }
    }
    return steps - left;
}

void ThreadBlock::end() {
    if (cluster)
        cluster->end(*this);
    cluster.reset();
}

} // namespace soft::ptx
