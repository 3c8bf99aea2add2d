#include "api/call.h"

// These functions do nothing, because there is no profiler to start or stop.

namespace soft {

SOFT_API_BARE(cuProfilerStart) { return CUDA_SUCCESS; }

SOFT_API_BARE(cuProfilerStop) { return CUDA_SUCCESS; }

} // namespace soft
