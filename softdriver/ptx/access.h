#pragma once

#include "ptx/machine.h"

// This header says how the lanes of a warp access memory, in all state spaces.

namespace soft::ptx {

// How a step of a warp accesses memory: the warp, the step, the state space and the kind of use.
struct Access {
    Warp &warp;
    const Step &step;
    Space space;
    Use use;

    // Returns the host address of a lane's bytes, or null if the lane must not access them. Does
    // not check the alignment.
    char *reach(unsigned lane, uint64_t address, size_t bytes) const {
        if (space == Space::Global ||
            // Fast path: the most frequent case.
            (space == Space::Generic && address < shared_window))
            return warp.machine.memory.reach(step.site, address, bytes, use);
        return reach_other(lane, address, bytes);
    }
    // Like reach(), but also checks the alignment. If the access is not allowed, ends the launch
    // with an error and returns null.
    char *reach_or_fail(unsigned lane, uint64_t address, size_t bytes) const {
        return reach_or_fail(lane, address, bytes, bytes);
    }
    char *reach_or_fail(unsigned lane, uint64_t address, size_t bytes, size_t alignment) const {
        char *found = address & (alignment - 1) ? nullptr : reach(lane, address, bytes);
        if (!found)
            fail(lane, address, bytes, alignment);
        return found;
    }

  private:
    char *reach_other(unsigned lane, uint64_t address, size_t bytes) const;
    void fail(unsigned lane, uint64_t address, size_t bytes, size_t alignment) const;
};

// Returns the host address of bytes of shared memory. If `generic` is true, the address is generic.
// If the access is not allowed, ends the launch with an error and returns null.
char *reach_shared(Warp &warp, const Step &step, unsigned lane, uint64_t address, size_t bytes,
                   Use use, bool generic);

// Replaces a generic address by the address in its state space. Returns this state space.
Space narrow_generic(uint64_t &address);

} // namespace soft::ptx
