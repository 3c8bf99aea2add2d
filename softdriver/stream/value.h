#pragma once

#include "base/cuda_api.h"
#include "work/operation.h"

namespace soft {

// Makes the operation that waits for a value in memory, or writes one. Words have 32 or 64 bits.
template <class Word>
CUresult make_wait(CUdeviceptr address, Word value, unsigned flags, OperationPtr &operation);
template <class Word>
CUresult make_write(CUdeviceptr address, Word value, unsigned flags, OperationPtr &operation);
// The error of running it in a stream that cannot access the memory.
CUresult check_reach(const Stream &stream, const Operation &operation);

// The first versions of these functions are for devices whose attributes say so: this is none.
template <class... Arguments> CUresult refuse_first_version(const Arguments &...) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

} // namespace soft
