#pragma once

#include "base/random.h"
#include "ptx/memory.h"
#include "ptx/warp.h"

#include <deque>
#include <set>

// This header has the state of a running launch.

namespace soft::ptx {

// Sets `index` to the three-dimensional index of the thread or block with this number.
void spread(uint64_t number, const unsigned extents[3], unsigned index[3]);
std::string triple(const unsigned index[3]); // the text of an index, such as "(1, 0, 0)"

constexpr size_t reserved_shared_bytes = 1024; // of each block, on GPUs since sm_80
constexpr char fresh_byte = char(0xCD);        // fills memory that was never written

class Observer;

struct Barrier {
    unsigned expected = 0;         // number of threads that must arrive; 0 means all live threads
    std::vector<uint32_t> arrived; // for each warp, a mask of the lanes that have arrived
    // For a reduction: the number of lanes with a true predicate, and the number of all lanes.
    unsigned trues = 0, count = 0;
    // The values of `trues` and `count` when the barrier was last completed.
    unsigned last_trues = 0, last_count = 0;
    bool used = false;
};

constexpr unsigned barriers_of_block = 16;
constexpr unsigned barrier_of_cluster = barriers_of_block; // its number, where lanes wait

struct ThreadBlock;

// The barrier of a cluster. All blocks of the cluster are resident from its start on.
class Cluster {
  public:
    void start(ThreadBlock &block);
    void end(const ThreadBlock &block);
    void arrive(const Warp &warp, uint32_t lanes);
    // Completes the barrier if all threads that have not ended have arrived.
    void complete_if_all();
    // Returns whether no thread of the cluster can go on.
    bool is_stuck() const;
    const std::vector<ThreadBlock *> &blocks() const { return blocks_; } // that have not ended

  private:
    void pass_on_waits();

    std::vector<ThreadBlock *> blocks_;
};

struct ThreadBlock {
    Machine &machine;
    uint64_t number = 0;
    unsigned index[3] = {};
    unsigned live = 0;  // threads that have not ended
    bool spins = false; // true if its last slice made no progress
    // The block has executed griddepcontrol.launch_dependents; it does not run until the others
    // have.
    bool allows = false, held = false;
    // No thread can run before the barrier of the cluster is complete.
    bool stuck = false;
    std::shared_ptr<Cluster> cluster; // null if the kernel has no barrier of clusters
    // For each warp, the lanes that have arrived at the barrier of the cluster.
    std::vector<uint32_t> arrived_at_cluster;
    std::vector<char> shared;
    std::vector<std::unique_ptr<Warp>> warps;
    Barrier barriers[barriers_of_block];

    explicit ThreadBlock(Machine &machine);
    void start(uint64_t number);
    // Runs about `steps` steps. Returns how many it has run.
    uint64_t run(uint64_t steps);
    bool done() const { return live == 0; }
    void end(); // all threads have ended

    // Records that lanes arrive at a barrier. The barrier waits for `expected` threads, or for all
    // threads if this is 0. `holds` has the lanes whose predicate is true.
    void arrive(unsigned barrier, unsigned expected, const Warp &warp, uint32_t lanes,
                uint32_t holds);
    void threads_ended(unsigned threads);
    // Lets a warp learn that others have executed griddepcontrol.wait.
    void pass_on_wait(Warp &warp) const;

  private:
    void complete_if_all(unsigned barrier);
    bool waits_for_cluster();
    std::string deadlock() const;

    std::vector<unsigned> order_; // the order in which warps run
    size_t turn_ = 0;             // index in order_ of the current warp
    uint64_t slice_left_ = 0;     // steps left for the current warp
    uint64_t progress_before_ = 0;
    // For each warp, by index in order_, whether it made no progress in its last slice.
    std::vector<bool> spins_;
};

// A machine runs all blocks of the grid, or a part of them. The machines of a launch share only
// global memory, so the work of a machine does not depend on when the others run.
struct Machine {
    static constexpr uint64_t longest_sleep = 1000000; // in nanoseconds: the limit of PTX

    explicit Machine(const Launch &launch);
    ~Machine();
    Run::State advance(uint64_t steps);
    // Divides the chains of blocks that have not started among this machine and `parts` - 1 new
    // ones. Each machine runs every parts-th of these chains.
    std::vector<std::unique_ptr<Machine>> split(unsigned parts);

    // Ends the launch with an error that a lane has caused at this step.
    void fail(Warp &warp, const Step &step, unsigned lane, CUresult status, const std::string &what,
              uintptr_t address = 0);
    // Warns about what a lane has done at this step, once for each step.
    void warn(const Warp &warp, const Step &step, const std::string &what);
    // Ends the launch with an error that no single step has caused.
    void fail(CUresult status, const std::string &what);
    // Ends the launch because it has run too many steps.
    void fail_budget();
    std::string where(const Warp &warp, unsigned lane) const;
    bool failed() const { return fault.status != CUDA_SUCCESS; }
    // Adds the sleep of a warp to the time that the machine has to sleep.
    void sleep(uint64_t nanoseconds);
    // Returns whether the piece must end because the machine has to sleep.
    bool tired() const { return sleeps_ >= longest_sleep; }
    void thread_index(const Warp &warp, unsigned lane, unsigned index[3]) const;
    // Finds the texture or surface with this handle; for a query, a surface is a texture, too. Ends
    // the launch with an error, and returns null, if there is none.
    const Texture *find_texture(Warp &warp, const Step &step, unsigned lane, uint64_t handle,
                                bool surface, bool query = false);
    // Returns the value of the clock registers. This is the number of steps so far, plus the
    // nanoseconds that the machine has slept, plus 16 for each earlier read, so that a loop that
    // waits for the clock ends.
    uint64_t cycles() const { return executed + slept + (looked += 16); }
    mutable uint64_t looked = 0;

    const Launch &launch;
    const Code &code; // code of the kernel
    const Library &library;
    Memory memory;
    std::unique_ptr<Observer> observer; // null if nothing is checked
    Random random;
    Fault fault;
    uint64_t executed = 0;
    uint64_t slept = 0;      // nanoseconds
    bool done = false;       // all blocks of the machine have ended
    unsigned threads = 0;    // number of threads of a block
    uint64_t blocks = 0;     // number of blocks of the grid
    uint64_t started = 0;    // number of blocks that the machine has started
    size_t shared_bytes = 0; // with the reserved part, if the kernel uses it
    size_t reserved_begin = 0;
    size_t shared_room = 0; // reads below this offset, but beyond shared_bytes, cause a warning
    // Counts the events for which threads may wait: writes, changes by atomics, completed barriers.
    // If a block or warp causes no such event in its slice, it probably waits for other threads.
    uint64_t progress = 0;
    bool waited = false; // a warp had to wait at griddepcontrol.wait in this piece
    // True if all that the last piece did was to wait there.
    bool waits() const { return waited && progress == progress_of_piece_; }
    // A block has allowed dependent launches to begin without waiting for the prerequisite.
    bool runs_ahead = false;
    // Notes that a block allows dependent launches to begin.
    void allow(ThreadBlock &block);

  private:
    uint64_t progress_of_piece_ = 0; // value of `progress` at the beginning of the piece
    uint64_t allowing_ = 0;          // blocks that allow dependent launches, or that have ended
    void note_order(const ThreadBlock &block);
    bool skip_held();
    bool hold();
    void release_held();

    // The textures and surfaces that the current piece has used, by handle.
    std::map<uint64_t, std::shared_ptr<const Texture>> textures_;
    std::set<const Step *> warned_; // the steps with a warning

    std::string text_of(const Warp &warp, const Step &step) const;

    bool all_started() const { return !chain_left_ && next_chain_ >= chains_; }
    Run::State run_blocks(uint64_t steps);
    bool admit();
    void admit_block(uint64_t number);
    void admit_cluster(uint64_t number);
    void rest();
    uint64_t awake_together() const;
    void end_slice();
    void recycle();

    std::vector<std::unique_ptr<ThreadBlock>> resident_, idle_;
    size_t most_resident_ = 0; // how many blocks a GPU could run at the same time
    size_t turn_ = 0;
    uint64_t slice_left_ = 0;
    uint64_t progress_before_ = 0; // value of `progress` at the beginning of the slice
    size_t idle_turns_ = 0;        // number of slices in a row without progress
    // A large grid is divided into chains of neighbouring blocks, which start one after the other,
    // because they often use neighbouring memory. In a small grid, each block is a chain. Chains
    // start in a pseudo-random order: the chain that starts as number n has the index first_ + n *
    // step_, modulo the number of chains. The machine's next chain is number next_chain_.
    // If the kernel has barriers of clusters, all of this is about clusters in place of blocks.
    uint64_t chain_blocks_ = 1, chains_ = 0;
    uint64_t next_chain_ = 0, step_ = 1, first_ = 0;
    uint64_t in_chains_ = 0;                    // blocks in all chains
    uint64_t chain_begin_ = 0, chain_left_ = 0; // the blocks of the current chain still to start
    bool backwards_ = false;                    // the last block of a chain starts first
    uint64_t sleeps_ = 0;                       // nanoseconds that the machine has to sleep
    unsigned parts_ = 1; // next_chain_ grows by this number for each chain that the machine starts
};

} // namespace soft::ptx
