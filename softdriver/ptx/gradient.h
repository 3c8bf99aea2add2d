#pragma once

#include "ptx/sample.h"

// This header computes the level from the gradients of a position, as an H100 does.

namespace soft::ptx {

// How far the position of a read moves, in elements of the first level.
struct Gradient {
    float parts[3];
    uint32_t leaves; // 1 if it leaves the face of a cube. A row of these may have any bits.
};

Gradient gradient_of(const Texture &texture, const Spot &spot, const float (&derivatives)[3]);
float level_of_gradients(Gradient first, Gradient second);

} // namespace soft::ptx
