#pragma once

#include "cuda_api.h"
#include "operation.h"

namespace soft {

// Makes the operation that waits for a value in memory, or writes one. Words have 32 or 64 bits.
template <class Word>
CUresult make_wait(CUdeviceptr address, Word value, unsigned flags, OperationPtr &operation);
template <class Word>
CUresult make_write(CUdeviceptr address, Word value, unsigned flags, OperationPtr &operation);

} // namespace soft
