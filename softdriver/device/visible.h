#pragma once

#include "base/cuda_api.h"

#include <vector>

namespace soft {

// Returns the indices of the devices that CUDA_VISIBLE_DEVICES makes visible, in the order of that
// list.
std::vector<int> visible_devices(int devices);
CUuuid uuid_of(int place);

} // namespace soft
