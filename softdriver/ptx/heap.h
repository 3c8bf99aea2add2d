#pragma once

#include "ptx/run.h"

#include <deque>
#include <map>
#include <mutex>

namespace soft::ptx {

// The memory from which the kernels of a context allocate with malloc. Like an arena, it returns
// ascending addresses as long as it can, so that a pointer to freed memory stays invalid.
class Heap {
  public:
    // Creates a heap that can have this many bytes allocated at the same time.
    explicit Heap(size_t capacity);
    ~Heap();
    Heap(const Heap &) = delete;

    // Returns the address of new memory, or 0 if there is not enough.
    uintptr_t allocate(size_t bytes);
    // Frees memory. Returns false if no live memory begins at the address.
    bool release(uintptr_t address);
    // Finds the live memory that contains the address. Returns false if there is none.
    bool find(uintptr_t address, Segment &segment);
    bool contains(uintptr_t address) const { return address - begin_ < bytes_; }
    // Describes where an address in the heap lies: "4 bytes beyond the end of ...".
    std::string describe(uintptr_t address);

  private:
    struct Block {
        size_t bytes = 0;
        bool live = true;
    };
    using Blocks = std::map<uintptr_t, Block>;

    uintptr_t find_gap(size_t bytes);
    Blocks::iterator block_before(uintptr_t address);

    std::mutex mutex_; // guards all members that change
    const size_t capacity_;
    size_t used_ = 0;
    uintptr_t begin_ = 0; // kernels use these addresses, which the host cannot access
    size_t bytes_ = 0;
    char *alias_ = nullptr; // where the driver accesses the same bytes
    uintptr_t cursor_ = 0;
    // All live blocks, and the blocks that were freed most recently, unless their addresses are in
    // use again.
    Blocks blocks_;
    std::deque<uintptr_t> freed_; // the addresses of the freed blocks, the oldest first
};

} // namespace soft::ptx
