#pragma once

#include "device/device.h"

namespace soft {

constexpr int newest_attribute = 147; // the last attribute of CUDA 13.0
constexpr int newest_jit_option = 35; // one more than the last option of CUDA 13.0
constexpr int max_persisting_l2 = 32768000;
// Bytes of shared memory that a block may have after an opt-in.
constexpr int shared_memory_opt_in = 232448;
constexpr int max_policy_window = 134213632;
constexpr int memory_sync_domains = 4;
constexpr int linear_texture_width = 268435456;

int device_capability(); // the compute capability of the devices: 90 for 9.0
int read_attribute(const Device &device, int attribute);

} // namespace soft
