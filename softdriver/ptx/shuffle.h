#pragma once

#include "ptx/warp.h"

namespace soft::ptx {

// Returns the source lane of a lane in a shuffle, or -1 if the lane keeps its own value or the step
// is no shuffle.
int lane_read_by(const Warp &warp, const Step &step, unsigned lane);

} // namespace soft::ptx
