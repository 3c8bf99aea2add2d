#pragma once

#include "ptx/texture.h"

#include <functional>

// This header computes the result of reading a texture.

namespace soft::ptx {

// Returns the bytes of the element at an address, or null if the kernel cannot read it.
using ReadTexel = std::function<const char *(uintptr_t address)>;

// Where a texture is read. The position is in floating-point coordinates, or in `index` if these
// are integers.
struct Spot {
    bool integers = false;
    float position[3] = {};
    int32_t index[3] = {};
    uint32_t layer = 0;
    float level = 0;
    // True if the instruction has a level, or gradients from which the level is computed.
    bool says_level = false;
};

// Samples the texture and stores the four channels as the bits that the registers receive. Both
// functions return false if `read` returned null.
bool sample(const Texture &texture, const Spot &spot, const ReadTexel &read, uint32_t (&result)[4]);
// Reads one channel of the four elements that a linear filter would use: (0, 1), (1, 1), (1, 0) and
// (0, 0), where the first number is for x.
bool gather(const Texture &texture, const Spot &spot, unsigned channel, const ReadTexel &read,
            uint32_t (&result)[4]);

} // namespace soft::ptx
