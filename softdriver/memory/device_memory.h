#pragma once

#include "base/cuda_api.h"

namespace soft {

class Call;

// Frees memory that begins at the address as cuMemFree does: it may wait for the device.
CUresult free_device_memory(Call &call, CUdeviceptr address);

} // namespace soft
