#pragma once

#include "base/random.h"
#include "ptx/memory.h"
#include "ptx/warp.h"

#include <deque>

// A launch while it runs.

namespace soft::ptx {

constexpr char fresh_byte = char(0xCD); // of memory that nobody has written

struct Barrier {
    unsigned expected = 0;                   // threads; 0: all that live
    std::vector<uint32_t> arrived;           // lanes, by warp
    unsigned trues = 0, count = 0;           // of a reduction: lanes whose predicate held, and all
    unsigned last_trues = 0, last_count = 0; // when it was complete
    bool used = false;
};

constexpr unsigned barriers_of_block = 16;

struct ThreadBlock {
    Machine &machine;
    uint64_t number = 0;
    unsigned index[3] = {};
    unsigned live = 0;  // threads that have not ended
    bool spins = false; // it made no progress in its last slice
    std::vector<char> shared;
    std::vector<std::unique_ptr<Warp>> warps;
    Barrier barriers[barriers_of_block];

    explicit ThreadBlock(Machine &machine);
    void start(uint64_t number);
    // Runs about so many steps; returns how many.
    uint64_t run(uint64_t steps);
    bool done() const { return live == 0; }

    // Arrivals: `expected` threads, 0 for all. See barrier.cpp.
    void arrive(unsigned barrier, unsigned expected, const Warp &warp, uint32_t lanes,
                uint32_t holds);
    void threads_ended(unsigned threads);

  private:
    void complete_if_all(unsigned barrier);
    std::string deadlock() const;

    std::vector<unsigned> order_; // of warps
    size_t turn_ = 0;             // in it
    uint64_t slice_left_ = 0;     // of the warp whose turn it is
    uint64_t progress_before_ = 0;
    std::vector<bool> spins_; // warps that made no progress in their last slice
};

struct Machine {
    explicit Machine(Launch launch);
    Run::State advance(uint64_t steps);

    // Ends the launch: what went wrong when this lane executed this step.
    void fail(Warp &warp, const Step &step, unsigned lane, CUresult status, const std::string &what,
              uintptr_t address = 0);
    // Not at a particular step.
    void fail(CUresult status, const std::string &what);
    std::string where(const Warp &warp, unsigned lane) const;
    bool failed() const { return fault.status != CUDA_SUCCESS; }
    void thread_index(const Warp &warp, unsigned lane, unsigned index[3]) const;
    // What the clock registers show: steps stand for cycles, and to look takes some too.
    uint64_t cycles() const { return executed + (looked += 16); }
    mutable uint64_t looked = 0;

    const Launch launch;
    const Code &code; // of the kernel
    const Library &library;
    Memory memory;
    Random random;
    Fault fault;
    uint64_t executed = 0;
    unsigned threads = 0; // of a block
    uint64_t blocks = 0;  // of the grid
    size_t shared_bytes = 0;
    // Counts what lets others go on: writes, changes by atomics, barriers. Who makes none for a
    // while is taken to wait for others.
    uint64_t progress = 0;

  private:
    bool admit();
    void end_slice();
    void recycle();

    std::vector<std::unique_ptr<ThreadBlock>> resident_, idle_;
    size_t most_resident_ = 0; // as many as a GPU would have at a time
    size_t turn_ = 0;
    uint64_t slice_left_ = 0;
    uint64_t progress_before_ = 0;                // when the slice began
    size_t idle_turns_ = 0;                       // slices in a row that made none
    uint64_t started_ = 0, step_ = 1, first_ = 0; // the order of the blocks: a walk by step_
};

} // namespace soft::ptx
