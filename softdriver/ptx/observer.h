#pragma once

#include "ptx/machine.h"

namespace soft::ptx {

// Looks at what the threads of a machine do: the checks inside kernels (check/).
class Observer {
  public:
    virtual ~Observer() = default;
    virtual void run(Warp &warp, const Step &step) = 0; // runs a step
    virtual void starts(ThreadBlock &block) = 0;
    // Lanes arrive at a barrier of their block, and wait there or go on.
    virtual void arrives(const Warp &warp, unsigned barrier, uint32_t lanes, bool waits) = 0;
    virtual void completes(const ThreadBlock &block, unsigned barrier) = 0;
    // All lanes in `members` are at bar.warp.sync. Called for each group of these lanes.
    virtual void meets(const Warp &warp, uint32_t members) = 0;
};

} // namespace soft::ptx
