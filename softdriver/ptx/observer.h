#pragma once

#include "ptx/machine.h"

namespace soft::ptx {

// Looks at what the threads of a machine do: the checks inside kernels (check/).
class Observer {
  public:
    virtual ~Observer() = default;
    virtual void run(Warp &warp, const Step &step) = 0; // runs a step
    virtual void starts(ThreadBlock &block) = 0;
    // Called when lanes arrive at a barrier of their block. With `waits`, they wait at the barrier.
    virtual void arrives(const Warp &warp, unsigned barrier, uint32_t lanes, bool waits) = 0;
    virtual void completes(const ThreadBlock &block, unsigned barrier) = 0;
    // Called when all lanes in `members` have arrived at bar.warp.sync, for each group of these
    // lanes.
    virtual void meets(const Warp &warp, uint32_t members) = 0;
};

} // namespace soft::ptx
