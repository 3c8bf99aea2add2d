#pragma once

#include "code/modules.h"
#include "work/operation.h"

#include <array>
#include <map>

namespace soft {

struct Call;

// The values of launch attributes, by their CUlaunchAttributeID.
using LaunchAttributes = std::map<int, std::array<unsigned char, 64>>;

// The arguments of a launch.
struct LaunchRequest {
    unsigned grid[3] = {}, block[3] = {};
    unsigned cluster[3] = {}; // all zero if the launch does not set a cluster shape
    bool preferred_cluster = false;
    size_t shared = 0;
    bool cooperative = false;
    bool for_node = false;     // has an attribute that only nodes of graphs can have
    bool programmatic = false; // may start early, if the preceding kernel allows it
    void **parameters = nullptr, **extra = nullptr;
    LaunchAttributes attributes = {};
};

// A launch that has been checked, and that can be submitted any number of times.
struct PreparedLaunch {
    KernelFunctionPtr function;
    LaunchRequest request;           // its pointers to parameters are null
    std::vector<uint8_t> parameters; // the parameter block
    bool block = false;              // the program has passed the parameters as a block
};

CUresult prepare_launch(const KernelFunctionPtr &function, const Context &context,
                        const LaunchRequest &request, PreparedLaunch &launch);
OperationPtr launch_operation(const PreparedLaunch &launch, Stream &stream);
// Lets a launch begin before another one ends, if that one allows it.
void begin_early(const OperationPtr &operation, const OperationPtr &before);
// Checks a launch and submits it to a stream.
CUresult launch(Call &call, CUfunction function, const LaunchRequest &request, CUstream stream);
// Reads an attribute of a launch into the request.
CUresult read_attribute(const CUlaunchAttribute &attribute, LaunchRequest &request);
CUresult read_config(const CUlaunchConfig &config, LaunchRequest &request);
CUresult read_parameter(const ptx::Kernel &kernel, size_t index, size_t *offset, size_t *bytes);
bool valid_cache(CUfunc_cache config);
// Returns true if the kernel can be launched with blocks of this shape.
bool valid_block(const ptx::Kernel &kernel, const unsigned (&block)[3]);
// Finds the function of a handle.
CUresult resolve_function(CUfunction handle, KernelFunctionPtr &function);
// Like resolve_function(), but also accepts the handle of a library's kernel. For such a handle,
// finds the function that represents the kernel in this context.
CUresult resolve_kernel(CUfunction handle, const ContextPtr &context, KernelFunctionPtr &function);

} // namespace soft
