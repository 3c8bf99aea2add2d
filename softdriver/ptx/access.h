#pragma once

#include "ptx/machine.h"

// Memory accesses of lanes, in every state space.

namespace soft::ptx {

// One access of a warp: the instruction, the state space and the kind of use.
struct Access {
    Warp &warp;
    const Step &step;
    Space space;
    Use use;

    // The host address of these bytes for a lane; null if the access is not allowed. Does not check
    // the alignment.
    char *reach(unsigned lane, uint64_t address, size_t bytes) const {
        if (space == Space::Global ||
            (space == Space::Generic && address < shared_window)) // the most frequent case
            return warp.machine.memory.reach(step.site, address, bytes, use);
        return reach_other(lane, address, bytes);
    }
    // The same with a check of the alignment. On failure it ends the launch with an error and
    // returns null.
    char *reach_or_fail(unsigned lane, uint64_t address, size_t bytes) const {
        char *found = address & (bytes - 1) ? nullptr : reach(lane, address, bytes);
        if (!found)
            fail(lane, address, bytes);
        return found;
    }

  private:
    char *reach_other(unsigned lane, uint64_t address, size_t bytes) const;
    void fail(unsigned lane, uint64_t address, size_t bytes) const;
};

// The state space of a generic address. `address` becomes the address in that space.
Space narrow_generic(uint64_t &address);

} // namespace soft::ptx
