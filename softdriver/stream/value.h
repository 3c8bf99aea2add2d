#pragma once

#include "base/cuda_api.h"
#include "base/unsupported.h"
#include "device/context.h"
#include "work/operation.h"

namespace soft {

// Create an operation that waits for a value in memory, or writes one. A Word has 32 or 64 bits.
template <class Word>
CUresult make_wait(CUdeviceptr address, Word value, unsigned flags, OperationPtr &operation);
template <class Word>
CUresult make_write(CUdeviceptr address, Word value, unsigned flags, OperationPtr &operation);
// Makes the operation of one item of a batch.
CUresult make_value_operation(const CUstreamBatchMemOpParams &item, OperationPtr &operation);
constexpr unsigned max_values = 255; // in a batch
// Returns an error if the context cannot access the memory that the operation uses.
CUresult check_reach(const Context &context, const Operation &operation);

// Implements the first versions (without _v2) of the functions for values in memory. They always
// fail, because no software device has the attribute that they need.
template <class... Arguments> CUresult refuse_first_version(const Arguments &...) {
    return not_supported("the first version of the function: the device lacks "
                         "CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1; use the one with _v2");
}

} // namespace soft
