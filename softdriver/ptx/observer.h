#pragma once

#include "ptx/machine.h"

namespace soft::ptx {

// Lanes that arrive at a barrier of their block.
struct Arrival {
    const Step &step;
    unsigned barrier, expected; // the barrier waits for `expected` threads, or for all if this is 0
    uint32_t lanes;
    bool waits; // whether the lanes wait at the barrier
};

// Lanes that arrive at the barrier of their cluster, or wait there.
struct ClusterUse {
    enum class Kind : uint8_t {
        Arrives,
        Waits, // until the barrier is complete
        Passes // the barrier is complete already
    };
    const Step &step;
    uint32_t lanes;
    Kind kind;
    bool releases;
};

// A lane that uses an mbarrier.
struct MbarrierUse {
    enum class Kind : uint8_t {
        Initializes,
        Uses, // any other use; if there is no mbarrier, the launch then fails
        Invalidates,
        Fails, // a change that is not allowed, because of `wrong`; the launch then fails
        Copies // a bulk copy that tells the mbarrier its bytes
    };
    const Step &step;
    unsigned lane;
    uint64_t address; // in shared memory
    Kind kind;
    const std::string &wrong;
};

// Bytes of memory that a lane copies to other memory. If there are items (`item_bytes`), they
// update the items of the target.
struct Move {
    unsigned lane;
    Space to, from;
    uint64_t to_address, from_address;
    size_t bytes, item_bytes;
};

// Looks at what the threads of a machine do: the checks inside kernels (check/).
class Observer {
  public:
    virtual ~Observer() = default;
    // Set while a step runs whose effect describes all its accesses.
    bool knows_uses = false;
    // Runs a step, with before() and after().
    virtual void run(Warp &warp, const Step &step);
    virtual void before(Warp &, const Step &, const Effect &) {}
    virtual void after(Warp &, const Step &, const Effect &) {}
    virtual void starts(ThreadBlock &) {}
    virtual void ends(const ThreadBlock &) {}  // all threads of the block have ended
    virtual void hangs(const ThreadBlock &) {} // no thread of the block can ever go on
    virtual void arrives(const Warp &, const Arrival &) {}
    virtual void completes(const ThreadBlock &, unsigned /* barrier */) {}
    virtual void uses_cluster(const Warp &, const ClusterUse &) {}
    virtual void completes_cluster(const Cluster &) {}
    // Called when all lanes in `members` have arrived at bar.warp.sync, for each group of these
    // lanes.
    virtual void meets(const Warp &, uint32_t /* members */) {}
    virtual void uses_mbarrier(const Warp &, const MbarrierUse &) {}
    // The launch has ended, or has failed. First, the observer of the first machine takes over what
    // the other observers have seen.
    virtual void joins(Observer & /* other */) {}
    virtual void ends_launch() {}
    virtual void calls(const Warp &, const Frame &) {} // a call, or the kernel, begins
    // Called when arguments or results of a call have been passed.
    virtual void passes(const Warp &, const Frame & /* from */, const Frame & /* to */,
                        const std::vector<Transfer> &) {}
    // Called when a lane accesses memory, unless `knows_uses`. Not for every `ld`, `st`, `atom` and
    // `red`.
    virtual void uses(const Warp &, unsigned /* lane */, Space, uint64_t /* address */,
                      size_t /* bytes */, Use) {}
    // Called when a bulk copy has moved bytes, behind uses() of both.
    virtual void moves(const Warp &, const Step &, const Move &) {}
    // Called when printf reads an argument, or its text.
    virtual void prints(const Warp &, const Step &, unsigned /* lane */, Space,
                        uint64_t /* address */, size_t /* bytes */) {}
};

} // namespace soft::ptx
