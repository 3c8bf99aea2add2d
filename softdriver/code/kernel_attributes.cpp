#include "code/modules.h"
#include "device/device_attributes.h"

#include <algorithm>

// This file reads and sets the attributes of kernels.

namespace soft {
namespace {

constexpr int shared_memory_without_asking = 49152;

} // namespace

size_t static_shared(const ptx::Kernel &kernel) {
    constexpr size_t unit = 16;
    return (kernel.shared_bytes + unit - 1) / unit * unit;
}

unsigned thread_limit(const ptx::Kernel &kernel) {
    constexpr unsigned device_limit = 1024;
    uint64_t limit = product(kernel.max_threads);
    return limit ? std::min<uint64_t>(limit, device_limit) : device_limit;
}

size_t dynamic_shared_limit(const ptx::Kernel &kernel, const KernelSettings &settings) {
    if (settings.dynamic_shared >= 0)
        return settings.dynamic_shared;
    size_t most = shared_memory_without_asking;
    return most - std::min(static_shared(kernel), most);
}

int cluster_size(const ptx::Kernel &kernel, const KernelSettings &settings, int dimension) {
    return kernel.required_cluster[0] ? static_cast<int>(kernel.required_cluster[dimension])
                                      : settings.cluster[dimension];
}

CUresult read_function_attribute(const ptx::Program &program, const ptx::Kernel &kernel,
                                 const KernelSettings &settings, int attribute, int *value) {
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = static_cast<int>(thread_limit(kernel));
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = static_cast<int>(static_shared(kernel));
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = static_cast<int>(constant_bytes(program));
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = static_cast<int>(kernel.local_bytes);
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = static_cast<int>(kernel.registers);
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = program.capability;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = device_capability();
        break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        *value = 0;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = static_cast<int>(dynamic_shared_limit(kernel, settings));
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = settings.carveout;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        *value = kernel.explicit_cluster;
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *value =
            cluster_size(kernel, settings, attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = settings.large_clusters;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = settings.cluster_policy;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult write_function_attribute(const ptx::Kernel &kernel, KernelSettings &settings,
                                  int attribute, int value) {
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value + int64_t(static_shared(kernel)) > shared_memory_opt_in)
            return CUDA_ERROR_INVALID_VALUE;
        settings.dynamic_shared = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        settings.carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        if (value < 0 || kernel.required_cluster[0])
            return CUDA_ERROR_INVALID_VALUE;
        settings.cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        settings.large_clusters = value != 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        if (value < 0 || value > 2)
            return CUDA_ERROR_INVALID_VALUE;
        settings.cluster_policy = value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

} // namespace soft
