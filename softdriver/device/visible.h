#pragma once

#include "base/cuda_api.h"

#include <vector>

namespace soft {

// Returns the indices of the devices that CUDA_VISIBLE_DEVICES lets the program see, in the order
// in which it names them.
std::vector<int> visible_devices(int devices);
CUuuid uuid_of(int place);

} // namespace soft
