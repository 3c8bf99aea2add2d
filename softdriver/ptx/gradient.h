#pragma once

#include "ptx/sample.h"

// This header computes the mipmap level of a read from the two gradients of its position, as an
// H100 does.

namespace soft::ptx {

// How far a gradient moves the position of a read, in elements of level 0.
struct Gradient {
    float parts[3];
    // 1 if the moved position is outside of the face of the cube, otherwise 0. Not a bool, because
    // the row may have any bits in lanes that are not active.
    uint32_t leaves;
};

Gradient gradient_of(const Texture &texture, const Spot &spot, const float (&derivatives)[3]);
float level_of_gradients(Gradient first, Gradient second);

} // namespace soft::ptx
