#pragma once

#include <cstddef>

namespace soft {

// Returns true if an input of a link is libcudadevrt.a, NVIDIA's library of device functions.
bool is_device_runtime(const void *data, size_t bytes);

// The functions of that library that this driver implements, as PTX.
extern const char device_runtime[];

} // namespace soft
