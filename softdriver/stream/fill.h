#pragma once

#include "device/context.h"
#include "work/operation.h"

namespace soft {

struct Allocation;

// Makes the operation of a fill. `address` is where the driver accesses the memory.
OperationPtr fill_operation(const CUDA_MEMSET_NODE_PARAMS &fill, char *address);
// Checks a fill, and finds its memory. A fill of 0 bytes needs no memory.
CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS &fill, const Context &context, char *&address,
                    const Allocation **memory = nullptr);

} // namespace soft
