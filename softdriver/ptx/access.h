#pragma once

#include "ptx/machine.h"

// Accesses of lanes to memory of any space.

namespace soft::ptx {

// Of a warp that accesses memory.
struct Access {
    Warp &warp;
    const Step &step;
    Space space;
    Use use;

    // Where these bytes are for a lane; null if they may not be accessed so.
    char *reach(unsigned lane, uint64_t address, size_t bytes) const {
        if (space == Space::Global ||
            (space == Space::Generic && address < shared_window)) // most often
            return warp.machine.memory.reach(step.site, address, bytes, use);
        return reach_other(lane, address, bytes);
    }
    // The same with all checks: otherwise it is a fault, and the launch ends.
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

// The space that an address of the generic space lies in, which becomes its address there.
Space narrow_generic(uint64_t &address);

} // namespace soft::ptx
