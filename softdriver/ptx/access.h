#pragma once

#include "ptx/machine.h"

// This header says how the lanes of a warp access memory, in all state spaces.

namespace soft::ptx {

// Maps the addresses of several lanes to host addresses: address `a` of a lane is at the host
// address `base + a + lane * stride`.
struct Reach {
    uintptr_t base = 0;
    size_t stride = 0;

    char *of(unsigned lane, uint64_t address) const {
        return reinterpret_cast<char *>(base + address + lane * stride);
    }
};

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
        else if (warp.machine.observer)
            note_use(lane, address, bytes);
        return found;
    }

    // Fast path for lanes whose addresses have no pattern: finds the part of memory in which all of
    // them are expected to be. An access is allowed if its address, minus `begin`, is at most
    // `last`. Returns false if nothing is known; each lane must then be checked alone.
    bool expect(size_t bytes, Reach &reach, uint64_t &begin, uint64_t &last) const {
        size_t size = 0;
        begin = 0;
        if (space == Space::Shared) {
            reach.base = reinterpret_cast<uintptr_t>(warp.block.shared.data());
            size = warp.machine.shared_bytes;
        } else if (space == Space::Local) {
            reach = {reinterpret_cast<uintptr_t>(warp.local(0)),
                     size_t(warp.local(1) - warp.local(0))};
            size = warp.local_bytes();
        } else if (space == Space::Global || space == Space::Generic) {
            const Segment &segment = warp.machine.memory.last_segment(step.site);
            begin = segment.begin;
            reach.base = reinterpret_cast<uintptr_t>(segment.host) - begin;
            size = segment.writable || !writes(use) ? segment.bytes : 0;
        }
        last = size - bytes;
        return size >= bytes;
    }
    // Returns whether accesses that expect() has found must be recorded.
    bool records() const {
        return warp.machine.launch.record && (space == Space::Global || space == Space::Generic);
    }
    void record(uint64_t address, size_t bytes) const {
        warp.machine.memory.record(address, bytes, use);
    }

    // Fetches the cache lines that the warp will probably access next at this step: in all bytes
    // from `first` on, or only the first and the last of them.
    void prefetch_all(const char *first, size_t bytes) const {
        uintptr_t moved = warp.moved(step.site, first);
        for (size_t at = 0; at < bytes; at += cache_line)
            __builtin_prefetch(first + moved + at);
    }
    void prefetch_ends(const char *first, const char *last) const {
        uintptr_t moved = warp.moved(step.site, first);
        __builtin_prefetch(first + moved);
        __builtin_prefetch(last + moved);
    }

  private:
    static constexpr size_t cache_line = 64;
    char *reach_other(unsigned lane, uint64_t address, size_t bytes) const;
    void fail(unsigned lane, uint64_t address, size_t bytes, size_t alignment) const;
    void note_use(unsigned lane, uint64_t address, size_t bytes) const;
};

// Returns the host address of bytes of shared memory. If `generic` is true, the address is generic.
// If the access is not allowed, ends the launch with an error and returns null.
char *reach_shared(Warp &warp, const Step &step, unsigned lane, uint64_t address, size_t bytes,
                   Use use, bool generic);

// Tells the observer, if there is one, of a bulk copy.
struct Move;
void note_move(const Warp &warp, const Step &step, const Move &move);

// Replaces a generic address by the address in its state space. Returns this state space.
Space narrow_generic(uint64_t &address);

} // namespace soft::ptx
