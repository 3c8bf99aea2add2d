#pragma once

#include "base/cuda_api.h"

#include <vector>

namespace soft {

// The machine's devices that the program sees, in order, as CUDA_VISIBLE_DEVICES sets it.
std::vector<int> visible_devices(int devices);
CUuuid uuid_of(int place);

} // namespace soft
