#pragma once

#include "code/modules.h"

namespace soft {

struct Call;

// A launch as it was asked for.
struct LaunchRequest {
    unsigned grid[3] = {}, block[3] = {};
    unsigned cluster[3] = {}; // zero: not said
    bool preferred_cluster = false;
    size_t shared = 0;
    bool cooperative = false;
    void **parameters = nullptr, **extra = nullptr;
};

// Checks all of it, and puts it behind a stream's work.
CUresult launch(Call &call, CUfunction function, const LaunchRequest &request, CUstream stream);
CUresult read_config(const CUlaunchConfig &config, LaunchRequest &request);
CUresult read_parameter(const ptx::Kernel &kernel, size_t index, size_t *offset, size_t *bytes);
bool valid_cache(CUfunc_cache config);
// Whether the kernel can be launched with blocks of this shape.
bool valid_block(const ptx::Kernel &kernel, const unsigned (&block)[3]);
// The function that a handle names.
CUresult resolve_function(CUfunction handle, KernelFunctionPtr &function);
// The same where the handle may be that of a kernel of a library, which has a function in a
// context.
CUresult resolve_kernel(CUfunction handle, const ContextPtr &context, KernelFunctionPtr &function);

} // namespace soft
