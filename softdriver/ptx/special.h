#pragma once

#include <cstdint>
#include <string_view>

namespace soft::ptx {

struct Warp;
struct Machine;

// A special register, such as %tid.x.
struct Special {
    const char *name;
    uint8_t width; // width in bytes; 0 for a predicate
    // Returns the register's value in a lane. Null for registers whose value changes while a thread
    // runs: only mov can read such a register, by a call of `now`.
    uint64_t (*value)(const Machine &, const Warp &, unsigned lane);
    uint64_t (*now)(const Machine &, const Warp &);
    bool of_block = false; // true if the value depends only on the block
};

// Returns the number of the warp's block in its cluster.
unsigned rank_in_cluster(const Machine &machine, const Warp &warp);

const Special *find_special(std::string_view name);
// Returns whether the register tells a place in the reserved part of shared memory.
bool is_in_reserved_shared(const Special &special);
// Returns whether the register is a clock whose value differs in each run.
bool is_time(const Special &special);

} // namespace soft::ptx
