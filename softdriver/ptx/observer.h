#pragma once

#include "ptx/machine.h"

namespace soft::ptx {

// Looks at what the threads of a machine do: the checks inside kernels (check/).
class Observer {
  public:
    virtual ~Observer() = default;
    // Runs a step, with before() and after().
    virtual void run(Warp &warp, const Step &step);
    virtual void before(Warp &, const Step &, const Effect &) {}
    virtual void after(Warp &, const Step &, const Effect &) {}
    virtual void starts(ThreadBlock &) {}
    virtual void ends(const ThreadBlock &) {}  // all threads of the block have ended
    virtual void hangs(const ThreadBlock &) {} // no thread of the block can ever go on
    // Called when lanes arrive at a barrier of their block. With `waits`, they wait at the barrier.
    virtual void arrives(const Warp &, unsigned /* barrier */, uint32_t /* lanes */,
                         bool /* waits */) {}
    virtual void completes(const ThreadBlock &, unsigned /* barrier */) {}
    // Called when all lanes in `members` have arrived at bar.warp.sync, for each group of these
    // lanes.
    virtual void meets(const Warp &, uint32_t /* members */) {}
};

} // namespace soft::ptx
