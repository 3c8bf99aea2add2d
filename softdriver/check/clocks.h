#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

// Vector clocks of the threads of a launch, which say what is ordered before what inside a kernel.

namespace soft::check {

// The time of each thread of a block. A thread's own time grows whenever others can learn what it
// has done.
using Epochs = std::vector<uint32_t>;
using EpochsPtr = std::shared_ptr<const Epochs>;

// Returns the later time of each thread. A null pointer stands for the beginning, when all times
// are 0.
EpochsPtr joined(const EpochsPtr &a, const EpochsPtr &b);

// What is known about the threads of some blocks. A persistent tree by the number of the block:
// trees share what they have in common, because many threads learn nearly the same.
class Known {
  public:
    Known() = default;
    explicit operator bool() const { return root_ != nullptr; }
    const EpochsPtr *find(uint32_t block) const;
    void learn(uint32_t block, const EpochsPtr &epochs);
    void learn(const Known &other);

  private:
    struct Node;
    using NodePtr = std::shared_ptr<const Node>;
    static constexpr unsigned bits = 4, levels = 8;
    struct Node {
        std::array<NodePtr, 1u << bits> next;
        EpochsPtr epochs; // the times of a block; only in nodes of the lowest level
    };
    static NodePtr with(const NodePtr &node, unsigned level, uint32_t block,
                        const EpochsPtr &epochs);
    static NodePtr merged(const NodePtr &a, const NodePtr &b);

    NodePtr root_;
};

// What a strong write tells the threads that read the value: what the writer knew at its last fence
// or, if the write releases, at the write. `everyone` is for all threads. `block` is only for
// threads of the same block, because the scope of the write or of the fence was a block.
struct Told {
    Known everyone, block;
    uint32_t of = 0; // the block that `block` is for

    explicit operator bool() const { return everyone || block; }
    // Adds what a thread of a block has told.
    void add(const Told &other);
};

// The clocks of the threads of a block. Threads are numbered through its warps.
class Clocks {
  public:
    explicit Clocks(unsigned threads);
    void begin(uint32_t block); // a new block, whose threads know nothing

    uint32_t now(unsigned thread) const { return epochs_[thread]; }
    // Returns one of `lanes` of the warp such that the thread does not know the time `epoch` of
    // this lane. Returns -1 if there is none.
    int unknown(unsigned thread, uint32_t block, unsigned warp, uint32_t lanes,
                uint32_t epoch) const;

    // Call this when all threads of the block have waited for each other.
    void meet_all();
    // Call this when these lanes of a warp have waited for each other.
    void meet(unsigned warp, uint32_t lanes, uint32_t live);
    // Returns what these lanes of a warp know, including their own times, and then advances these
    // times.
    Known tell(unsigned warp, uint32_t lanes);
    void learn(unsigned thread, const Known &known);

    // The two parts of a fence. After release(), the thread's strong writes tell what came before
    // the fence. With acquire(), the thread learns what its earlier strong reads have seen.
    void release(unsigned thread, bool only_block);
    void acquire(unsigned thread, bool only_block);
    // The time of the thread's last release fence, or 0. Later strong writes of the thread tell
    // what came before this fence.
    uint32_t released_at(unsigned thread) const { return threads_[thread].released_at; }
    // told() returns what a strong write tells. see() is for a strong read of such a value.
    Told told(unsigned thread, bool releases, bool only_block);
    void see(unsigned thread, const Told &told, bool acquires, bool only_block);

  private:
    void take_in(unsigned thread, const Told &told, bool only_block);
    void learn_own(unsigned thread, const EpochsPtr &epochs);
    uint32_t known(unsigned thread, unsigned other) const;

    uint32_t block_ = 0;
    bool learned_ = false; // whether any thread has learned anything that others do not know
    Epochs epochs_;
    Epochs block_base_; // known to all threads of the block
    Epochs warp_base_;  // known to all threads of the same warp
    struct Thread {
        EpochsPtr more; // what it knows of its own block
        Known others;   // what it knows of other blocks
        Told seen, released;
        uint32_t released_at = 0;
    };
    std::vector<Thread> threads_;
};

} // namespace soft::check
