#pragma once

#include "base/cuda_api.h"

#include <string>
#include <vector>

namespace soft {

// Returns the indices of the devices that CUDA_VISIBLE_DEVICES makes visible, in the order of that
// list.
std::vector<int> visible_devices(int devices);
CUuuid uuid_of(int place);
// Returns the UUID as text: "GPU-" and groups of 8, 4, 4, 4 and 12 hexadecimal digits.
std::string uuid_text(int place);

} // namespace soft
