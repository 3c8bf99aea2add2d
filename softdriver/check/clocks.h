#pragma once

#include "check/counted.h"

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

// Vector clocks of the threads of a launch, which say what is ordered before what inside a kernel.

namespace soft::check {

constexpr unsigned warp_lanes = 32;
// How many warps make a product by wgmma together.
constexpr unsigned product_warps = 4;

// The time of each thread of a block. A thread's own time grows whenever others can learn what it
// has done.
struct Epochs : Counted {
    uint32_t all = 0; // the time of the threads that are not in `later`
    std::vector<std::pair<unsigned, uint32_t>> later; // thread and time, sorted by thread

    uint32_t of(unsigned thread) const;
    bool covers(const Epochs &other) const;
};
using EpochsPtr = CountedPtr<const Epochs>;

// Returns the later time of each thread. A null pointer stands for the beginning, when all times
// are 0.
EpochsPtr joined(const EpochsPtr &a, const EpochsPtr &b);

// What is known about the threads of some blocks. A persistent tree by the number of the block:
// trees share what they have in common, because many threads learn nearly the same.
class Known {
  public:
    explicit operator bool() const { return bool(root_); }
    const Epochs *find(uint32_t block) const;
    void learn(uint32_t block, const EpochsPtr &epochs);
    void learn(const Known &other);

  private:
    static constexpr unsigned bits = 4;
    using Ptr = CountedPtr<const Counted>; // a Node, or in the place of a node of level 0, Epochs
    struct Node : Counted {
        std::array<Ptr, 1u << bits> next;
    };
    static const Node &node(const Ptr &ptr) { return static_cast<const Node &>(*ptr); }
    static Node &own_node(Ptr &ptr);
    static Ptr merged(const Ptr &a, const Ptr &b, unsigned level);
    void grow(unsigned levels);

    Ptr root_;
    unsigned levels_ = 0; // the tree has the blocks below 16^levels_
};

// What a strong write passes on to the threads that read the value: what the writer knew at its
// last fence or, if the write releases, at the write itself. `everyone` is for all threads. `block`
// is only for threads of the same block, because the scope of the write or of the fence was a
// block.
struct Told {
    Known everyone, block;
    uint32_t of = 0; // the block that `block` is for

    explicit operator bool() const { return everyone || block; }
    // Adds what a thread of a block has passed on.
    void add(const Told &other);
};

// Says how the actors of a block are numbered. An actor is a thread, or does what a thread does not
// wait for: copies and products. First come the threads, through all warps: `stride` numbers. Then
// come planes of as many actors, one for each thread. Then comes an actor for each warp. The other
// actors belong to no thread.
//
// A product is an operation of the actors of four warps, at the same time of each. PTX collects
// products in one group for the whole warpgroup, and a wait ends when the products in the group are
// complete. So a warp that has waited knows that the other three warps' parts are over, too.
// CUTLASS relies on this: in a cluster, one thread of a warpgroup tells the producer that a stage
// is free.
struct Actors {
    unsigned stride = 0, planes = 0, of_warps = 0, others = 0;
    // Whether the kernel has acquire operations of block scope. They need a clock of what their
    // block has released. Without them, the clock for all blocks is enough.
    bool acquire_in_block = false;

    unsigned first_of_warps() const { return stride * (1 + planes); }
    unsigned first_other() const { return first_of_warps() + of_warps; }
    unsigned count() const { return first_other() + others; }
};

// The times of actors that are not threads begin with this one. Threads never reach it, so "all
// threads know everything up to this time of the block" never includes operations of such actors.
constexpr uint32_t first_time_of_actors = 1u << 31;

// The clocks of the actors of a block.
class Clocks {
  public:
    explicit Clocks(const Actors &actors);
    void begin(uint32_t block); // a new block, whose threads know nothing

    uint32_t block() const { return block_; }
    uint32_t now(unsigned thread) const {
        const Warp &warp = warps_[thread / warp_lanes];
        return warp.same ? warp.now : epochs_[thread];
    }
    // Sets the time of these lanes of a warp to the time of the latest of them, and returns it.
    // What other lanes know of these lanes does not change.
    uint32_t level(unsigned warp, uint32_t lanes);
    // Returns whether all lanes of the warp have the same time.
    bool is_same(unsigned warp) const { return warps_[warp].same; }
    // All threads of the block know each other up to the time known_to_block(), and all lanes of
    // the warp up to known_to_warp().
    uint32_t known_to_block() const { return base_; }
    uint32_t known_to_warp(unsigned warp) const { return warps_[warp].base; }
    // Returns whether any thread may know more than that.
    bool has_learned() const { return !touched_.empty(); }
    // Returns one of `lanes` of the warp such that the thread does not know the time `epoch` of
    // this lane. Returns -1 if there is none.
    int unknown(unsigned thread, uint32_t block, unsigned warp, uint32_t lanes,
                uint32_t epoch) const;

    // Records that the owner of an actor, which is not a thread, knows that the actor's operations
    // up to this time are complete. finished() returns this time; for a product, it is that of any
    // of its warps.
    void finish(unsigned actor, uint32_t time);
    uint32_t finished(unsigned actor) const;
    // Returns whether all threads of the block know that an actor is complete up to this time.
    bool is_known_to_block(unsigned actor, uint32_t time) const {
        return finished_[actor - actors_.stride].block >= time;
    }
    // Returns everything that follows from knowing this time of an actor.
    Known only(unsigned actor, uint32_t time) const;
    // Returns, for each actor of the block, the latest time that all of these lanes know, or that
    // any of them knows.
    using Times = std::vector<uint32_t>;
    Times known_to_all(unsigned warp, uint32_t lanes) const;
    Times known_to_any(unsigned warp, uint32_t lanes) const;

    // Call this when all threads of the block have waited for each other.
    void meet_all();
    // Call this when these lanes of a warp have waited for each other. `all` are its lanes.
    void meet(unsigned warp, uint32_t lanes, uint32_t all);
    // Returns what these lanes of a warp know, including their own times, and then advances these
    // times.
    Known tell(unsigned warp, uint32_t lanes) { return gather(warp, lanes, true); }
    // Like tell(), but what is returned does not include the lanes' own times.
    Known tell_others(unsigned warp, uint32_t lanes) { return gather(warp, lanes, false); }
    void learn(unsigned thread, const Known &known);

    // The two parts of a fence. After release(), the thread's strong writes pass on what came
    // before the fence. With acquire(), the thread learns what its earlier strong reads could have
    // told it.
    void release(unsigned thread, bool only_block);
    void acquire(unsigned thread, bool only_block);
    // For advice. `has_acquired`: whether the thread has executed an acquiring fence after its own
    // time `since`. `has_seen`: whether the thread has read, by a strong read, a value whose writer
    // knew thread `other` of the block at time `epoch` or later.
    bool has_acquired(unsigned thread, uint32_t since, bool only_block) const;
    bool has_seen(unsigned thread, uint32_t block, unsigned other, uint32_t epoch) const;
    // Returns whether strong writes of the thread may pass something on although they do not
    // release, or later accesses may learn what its strong reads have seen.
    bool tells(unsigned thread) const {
        return threads_[thread].released || !threads_[thread].words.empty();
    }
    // told() returns what a strong write to a word passes on: what came before a release fence, or
    // before an earlier release of the same word. see() records a strong read. The thread learns
    // what the read has seen only when a later access to the same word acquires, or at an acquiring
    // fence.
    // All mbarriers are one word, and the barrier of the cluster is another one.
    static constexpr uint64_t of_mbarriers = ~uint64_t{0}, of_clusters = of_mbarriers - 1;
    Told told(unsigned thread, uint64_t word, bool releases, bool only_block);
    void see(unsigned thread, uint64_t word, const Told &told, bool acquires, bool only_block);

  private:
    struct Warp {
        uint32_t base = 0; // known to all lanes
        uint32_t now = 1;  // the time of all lanes, if `same`
        bool same = true;
    };
    struct Word {
        Told seen, released; // by accesses to this word
    };
    // What a thread knew at a fence. Only some fences are followed by a strong write, so what the
    // thread knew of its own block is added to the tree when it is needed.
    struct Snapshot {
        Known known;
        EpochsPtr own;

        const Known &all(uint32_t block);
        explicit operator bool() const { return known || own; }
    };
    struct Released {
        Snapshot everyone, block; // as in Told
        explicit operator bool() const { return everyone || block; }
    };
    struct Thread {
        EpochsPtr more; // what it knows of its own block
        Known others;   // what it knows of other blocks
        Told seen;
        Released released;              // at the last fences
        std::map<uint64_t, Word> words; // the words where an access has seen or released something
        // The thread's times at its last acquiring fence of block scope, and of a wider scope.
        uint32_t acquired_in_block = 0, acquired = 0;
        bool touched = false;
    };

    // For an actor that is not a thread: the times up to which it is known to its thread or warp,
    // to all lanes of the warp of its thread, and to all threads of the block.
    struct Finished {
        uint32_t own = 0, warp = 0, block = 0;
    };

    bool knows_actor(unsigned thread, unsigned actor, uint32_t time) const;
    uint32_t known_of_actor(unsigned warp, uint32_t lanes, unsigned actor) const;
    Known gather(unsigned warp, uint32_t lanes, bool with_own);
    Snapshot snapshot(unsigned warp, uint32_t lanes, bool with_own);
    Times base_times(unsigned warp) const;
    template <class Act> void for_each_plane(unsigned warp, uint32_t lanes, Act act) const;
    Thread &touch(unsigned thread);
    void advance(unsigned warp, uint32_t lanes);
    void take_in(unsigned thread, const Told &told, bool only_block);
    void learn_own(unsigned thread, const EpochsPtr &epochs);

    const Actors actors_;
    uint32_t block_ = 0;
    uint32_t base_ = 0;   // known to all threads of the block
    uint32_t latest_ = 1; // of all times
    Known others_;        // what all threads know of other blocks
    std::vector<Warp> warps_;
    std::vector<uint32_t> epochs_; // for warps whose lanes have different times
    std::vector<Thread> threads_;
    std::vector<unsigned> touched_;  // the threads whose state has changed since the block began
    std::vector<Finished> finished_; // for each actor that is no thread
    bool any_finished_ = false;
};

} // namespace soft::check
