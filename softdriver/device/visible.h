#pragma once

#include "base/cuda_api.h"

#include <vector>

namespace soft {

// Which of the machine's devices a program sees, in which order: CUDA_VISIBLE_DEVICES decides.
std::vector<int> visible_devices(int devices);
CUuuid uuid_of(int place);

} // namespace soft
