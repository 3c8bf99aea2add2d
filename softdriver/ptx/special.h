#pragma once

#include <cstdint>
#include <string_view>

namespace soft::ptx {

struct Warp;
struct Machine;

// A special register.
struct Special {
    const char *name;
    uint8_t width; // in bytes
    // Null: it changes while a thread runs, and only mov may read it, by `now`.
    uint64_t (*value)(const Machine &, const Warp &, unsigned lane);
    uint64_t (*now)(const Machine &, const Warp &);
    bool of_block = false; // its value is the block's, else a thread has it in all blocks
};

const Special *find_special(std::string_view name);

} // namespace soft::ptx
