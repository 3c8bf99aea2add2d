#pragma once

#include "ptx/sample.h"

// This header computes the level that the gradients of a position tell, as an H100 does.

namespace soft::ptx {

// How far a gradient moves the place that is read, in elements of the first level.
struct Change {
    float parts[3];
    uint32_t leaves; // 1 if it leaves the face of a cube. A row of these may have any bits.
};

Change change_of(const Texture &texture, const Spot &spot, const float (&gradient)[3]);
float level_of(const Change &first, const Change &second);

} // namespace soft::ptx
