#pragma once

#include "call.h"
#include "modules.h"

namespace soft {

// A launch as it was asked for.
struct LaunchRequest {
    unsigned grid[3] = {}, block[3] = {};
    unsigned cluster[3] = {}; // zero: not said
    size_t shared = 0;
    bool cooperative = false;
    void **parameters = nullptr, **extra = nullptr;
};

// Checks all of it, and puts it behind a stream's work.
CUresult launch(Call &call, CUfunction function, const LaunchRequest &request, CUstream stream);
CUresult read_config(const CUlaunchConfig &config, LaunchRequest &request);
CUresult read_parameter(const ptx::Kernel &kernel, size_t index, size_t *offset, size_t *bytes);
bool valid_cache(CUfunc_cache config);
// The function that a handle names in a context, be it that of a kernel of a library.
CUresult resolve_function(Call &call, CUfunction handle, KernelFunctionPtr &function);

} // namespace soft
