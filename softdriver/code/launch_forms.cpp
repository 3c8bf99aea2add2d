#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"
#include "code/launch.h"
#include "device/device_attributes.h"

#include <cstring>

// This file implements the launch functions. They convert their arguments to a LaunchRequest and
// call launch().

namespace soft {
namespace {

// Values of CUlaunchAttributeID, which are repeated here because older headers lack some of them.
enum LaunchAttribute {
    ignore = 0,
    access_policy_window = 1,
    cooperative = 2,
    cluster_dimension = 4,
    cluster_scheduling = 5,
    programmatic_serialization = 6,
    programmatic_event = 7,
    priority = 8,
    domain_map = 9,
    domain = 10,
    preferred_cluster = 11,
    completion_event = 12,
    updatable_node = 13,
    carveout = 14,
    nvlink_scheduling = 16,
};

// Returns true if the event of an event attribute exists. The values of both event attributes begin
// with the handle of the event.
bool has_event(const CUlaunchAttribute &attribute) {
    uintptr_t event;
    std::memcpy(&event, &attribute.value, sizeof event);
    return state().events.find(event) != nullptr;
}

} // namespace

CUresult read_attribute(const CUlaunchAttribute &attribute, LaunchRequest &request) {
    std::memcpy(&request.attributes[static_cast<int>(attribute.id)], &attribute.value,
                sizeof attribute.value);
    int value;
    std::memcpy(&value, &attribute.value, sizeof value);
    auto hint = [](bool valid) { return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; };
    switch (static_cast<int>(attribute.id)) {
    case cooperative:
        request.cooperative = value != 0;
        return CUDA_SUCCESS;
    case programmatic_serialization:
        request.programmatic = value != 0;
        return CUDA_SUCCESS;
    case cluster_dimension:
        std::memcpy(request.cluster, &attribute.value, sizeof request.cluster);
        return CUDA_SUCCESS;
    case preferred_cluster:
        request.preferred_cluster = value != 0;
        return CUDA_SUCCESS;
    case ignore:
    case access_policy_window:
    case priority:
    case domain_map:
    case nvlink_scheduling:
        return CUDA_SUCCESS;
    case cluster_scheduling:
        return hint(value >= 0 && value <= 2);
    case domain:
        return hint(value >= 0 && value < memory_sync_domains);
    case carveout:
        return hint(value >= -1 && value <= 100);
    case programmatic_event:
    case completion_event:
        return has_event(attribute) ? not_supported("a launch attribute with an event: " +
                                                    std::to_string(attribute.id))
                                    : CUDA_ERROR_INVALID_HANDLE;
    case updatable_node:
        request.for_node = true;
        return value ? not_supported("the launch attribute DEVICE_UPDATABLE_KERNEL_NODE: kernels "
                                     "cannot change graphs")
                     : CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

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
