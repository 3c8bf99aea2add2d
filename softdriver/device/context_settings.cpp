#include "api/call.h"
#include "api/state.h"
#include "device/device_attributes.h"

// This file implements the flags of a context, and preferences that have no effect in this driver.

namespace soft {

bool valid_context_flags(unsigned flags) {
    constexpr unsigned known = 0xFF; // value of CU_CTX_FLAGS_MASK in new headers
    unsigned scheduling = flags & CU_CTX_SCHED_MASK;
    bool single = (scheduling & (scheduling - 1)) == 0;
    return !(flags & ~known) && single;
}

SOFT_API(cuCtxSetFlags, (unsigned flags), (flags)) {
    if (!valid_context_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    // A program cannot change CU_CTX_MAP_HOST after it has created the context.
    flags &= ~unsigned(CU_CTX_MAP_HOST);
    call.context->flags = flags | (call.context->flags & CU_CTX_MAP_HOST);
    if (call.context->primary)
        call.context->device->primary_flags = flags;
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetCacheConfig, (CUfunc_cache * config), (config)) {
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = call.context->cache;
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxSetCacheConfig, (CUfunc_cache config), (config)) {
    if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    call.context->cache = config;
    return CUDA_SUCCESS;
}

// Shared memory of this architecture has one bank size, which a program cannot change.
SOFT_API(cuCtxGetSharedMemConfig, (CUsharedconfig * config), (config)) {
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxSetSharedMemConfig, (CUsharedconfig config), (config)) {
    bool known = config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                 config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Does nothing: this driver has no L2 cache.
SOFT_API_BARE(cuCtxResetPersistingL2Cache) { return CUDA_SUCCESS; }

// A context always has all multiprocessors of its device.
SOFT_API(cuCtxGetExecAffinity, (CUexecAffinityParam * parameter, CUexecAffinityType type),
         (parameter, type)) {
    if (!parameter || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    parameter->type = type;
    parameter->param.smCount.val =
        read_attribute(*call.context->device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return CUDA_SUCCESS;
}

} // namespace soft
