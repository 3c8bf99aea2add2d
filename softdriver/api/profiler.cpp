#include "api/call.h"

// There is no profiler to start or stop, so these functions do nothing.

namespace soft {

SOFT_API_BARE(cuProfilerStart) { return CUDA_SUCCESS; }

SOFT_API_BARE(cuProfilerStop) { return CUDA_SUCCESS; }

} // namespace soft
