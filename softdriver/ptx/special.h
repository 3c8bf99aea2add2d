#pragma once

#include <cstdint>
#include <string_view>

namespace soft::ptx {

struct Warp;
struct Machine;

// A special register.
struct Special {
    const char *name;
    uint8_t width; // in bytes; 0: a predicate
    // Null for registers that change while a thread runs: only mov can read these, with `now`.
    uint64_t (*value)(const Machine &, const Warp &, unsigned lane);
    uint64_t (*now)(const Machine &, const Warp &);
    bool of_block = false; // depends on the block; otherwise constant for a thread in all blocks
};

const Special *find_special(std::string_view name);

} // namespace soft::ptx
