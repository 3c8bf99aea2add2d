#pragma once

#include "ptx/texture.h"

#include <functional>

// This header computes what reading a texture returns.

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
    bool says_level = false; // the instruction has a level, or gradients that tell it
};

// Reads four channels as the bits of registers. Return false if `read` returned null.
bool sample(const Texture &texture, const Spot &spot, const ReadTexel &read, uint32_t (&result)[4]);
// Returns the length of a gradient of the position, in elements of the first level. That of a
// direction is the one of its place on the face of the cube.
double length_of(const Texture &texture, const Spot &spot, const float (&gradient)[3]);
// Returns the level whose elements are as wide as the longer gradient. H100s round it up to a part
// of 256.
float level_of_length(double length);
// Reads one channel of the four elements with which a filter would compute: (0, 1), (1, 1), (1, 0)
// and (0, 0), where the first number is for x.
bool gather(const Texture &texture, const Spot &spot, unsigned channel, const ReadTexel &read,
            uint32_t (&result)[4]);

} // namespace soft::ptx
