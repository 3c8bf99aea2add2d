#pragma once

#include "check/clocks.h"
#include "ptx/run.h"

#include <array>
#include <deque>
#include <set>

// The fences between the generic proxy and the async proxy. Copies by cp.async.bulk and products by
// wgmma are in the async proxy. They see what a thread wrote before only if such a fence is on the
// way from the write to the copy, in any thread.

namespace soft::check {

class ProxyFences {
  public:
    explicit ProxyFences(size_t warps) : warps_(warps) {}
    // Lanes of a warp execute fence.proxy.async for shared or global memory, or for both.
    void add(Clocks &clocks, unsigned warp, uint32_t lanes, ptx::Space space);
    // Returns, for each thread of the block, the time up to which its writes are before a fence
    // that an accessor with the times `known` knows.
    Clocks::Times fenced(const Clocks::Times &known, uint32_t block, bool shared) const;
    // The same for a write by a thread of another block.
    bool fenced(const Clocks::Times &known, uint32_t block, unsigned thread, uint32_t epoch) const;

  private:
    struct Fence {
        uint32_t lanes;
        std::array<uint32_t, 32> times; // of the lanes
        // A thread that knows a later time of a lane than this knows the fence.
        std::array<uint32_t, 32> known_behind;
        Known others; // what they know of others
        bool shared, global;
    };
    template <class Act>
    void for_each_known(const Clocks::Times &known, bool shared, Act act) const;

    std::vector<std::deque<Fence>> warps_;
};

} // namespace soft::check
