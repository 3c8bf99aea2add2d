#include "launch.h"
#include "state.h"

#include <cstring>

// The functions that launch: how they say what is to be launched.

namespace soft {
namespace {

// The numbers of attributes; older headers lack some.
enum LaunchAttribute {
    ignore = 0,
    access_policy_window = 1,
    cooperative = 2,
    synchronization_policy = 3,
    cluster_dimension = 4,
    cluster_scheduling = 5,
    programmatic_serialization = 6,
    priority = 8,
    domain_map = 9,
    domain = 10,
    preferred_cluster = 11,
    carveout = 14,
    nvlink_scheduling = 16,
    newest_launch_attribute = 16,
};

CUresult read_attribute(const CUlaunchAttribute &attribute, LaunchRequest &request) {
    int value;
    std::memcpy(&value, &attribute.value, sizeof value);
    switch (static_cast<int>(attribute.id)) {
    case cooperative:
        request.cooperative = value != 0;
        return CUDA_SUCCESS;
    case cluster_dimension:
        std::memcpy(request.cluster, &attribute.value, sizeof request.cluster);
        return CUDA_SUCCESS;
    // Hints.
    case ignore:
    case access_policy_window:
    case cluster_scheduling:
    case programmatic_serialization:
    case priority:
    case domain_map:
    case domain:
    case preferred_cluster:
    case carveout:
    case nvlink_scheduling:
        return CUDA_SUCCESS;
    default: {
        bool known = static_cast<unsigned>(attribute.id) <= newest_launch_attribute;
        return known ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    }
}

} // namespace

CUresult read_config(const CUlaunchConfig &config, LaunchRequest &request) {
    request = {{config.gridDimX, config.gridDimY, config.gridDimZ},
               {config.blockDimX, config.blockDimY, config.blockDimZ}};
    request.shared = config.sharedMemBytes;
    if (config.numAttrs && !config.attrs)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config.numAttrs; i++)
        if (CUresult status = read_attribute(config.attrs[i], request))
            return status;
    return CUDA_SUCCESS;
}

SOFT_STREAM_API(cuLaunchKernel,
                (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                 CUstream stream, void **parameters, void **extra),
                (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                 parameters, extra)) {
    LaunchRequest request{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}};
    request.shared = shared;
    request.parameters = parameters;
    request.extra = extra;
    return launch(call, function, request, stream);
}

SOFT_STREAM_API(cuLaunchCooperativeKernel,
                (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                 CUstream stream, void **parameters),
                (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                 parameters)) {
    LaunchRequest request{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}};
    request.shared = shared;
    request.parameters = parameters;
    request.cooperative = true;
    return launch(call, function, request, stream);
}

SOFT_STREAM_API(cuLaunchKernelEx,
                (const CUlaunchConfig *config, CUfunction function, void **parameters,
                 void **extra),
                (config, function, parameters, extra)) {
    LaunchRequest request;
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = read_config(*config, request))
        return status;
    request.parameters = parameters;
    request.extra = extra;
    return launch(call, function, request, config->hStream);
}

} // namespace soft
