#include "api/call.h"
#include "api/state.h"
#include "code/launch.h"
#include "device/device_attributes.h"

// This file implements cuFunc*, for the kernels of modules.

namespace soft {

// Stores the size of a parameter, and its offset in the parameter block.
CUresult read_parameter(const ptx::Kernel &kernel, size_t index, size_t *offset, size_t *bytes) {
    if (!offset || index >= kernel.parameters.size())
        return CUDA_ERROR_INVALID_VALUE;
    const ptx::Variable &parameter = kernel.parameters[index];
    *offset = parameter.offset;
    if (bytes)
        *bytes = parameter.bytes();
    return CUDA_SUCCESS;
}

bool valid_cache(CUfunc_cache config) {
    return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
}

SOFT_API(cuFuncGetAttribute, (int *value, CUfunction_attribute attribute, CUfunction handle),
         (value, attribute, handle)) {
    KernelFunctionPtr function;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_function(handle, function))
        return status;
    return read_function_attribute(*function->module->program, *function->kernel,
                                   function->settings, attribute, value);
}

SOFT_API(cuFuncSetAttribute, (CUfunction handle, CUfunction_attribute attribute, int value),
         (handle, attribute, value)) {
    KernelFunctionPtr function;
    if (CUresult status = resolve_function(handle, function))
        return status;
    return write_function_attribute(*function->kernel, function->settings, attribute, value);
}

// cuFuncSetCacheConfig and cuFuncSetSharedMemConfig set hints. This driver only checks their
// arguments.
SOFT_API(cuFuncSetCacheConfig, (CUfunction handle, CUfunc_cache config), (handle, config)) {
    KernelFunctionPtr function;
    if (CUresult status = resolve_function(handle, function))
        return status;
    return valid_cache(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuFuncSetSharedMemConfig, (CUfunction handle, CUsharedconfig config), (handle, config)) {
    KernelFunctionPtr function;
    if (CUresult status = resolve_function(handle, function))
        return status;
    bool valid = config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                 config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuFuncGetModule, (CUmodule * module, CUfunction handle), (module, handle)) {
    KernelFunctionPtr function;
    if (!module || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_function(handle, function))
        return status;
    *module = function->module->handle;
    return CUDA_SUCCESS;
}

// Stores the kernel's name. The string is valid as long as the module is loaded.
SOFT_API(cuFuncGetName, (const char **name, CUfunction handle), (name, handle)) {
    KernelFunctionPtr function;
    if (!name || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_function(handle, function))
        return status;
    *name = function->kernel->name.c_str();
    return CUDA_SUCCESS;
}

SOFT_API(cuFuncGetParamInfo, (CUfunction handle, size_t index, size_t *offset, size_t *bytes),
         (handle, index, offset, bytes)) {
    KernelFunctionPtr function;
    if (!offset || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = call.require(Needs::Optional))
        return status;
    if (CUresult status = resolve_function(handle, function))
        return status;
    return read_parameter(*function->kernel, index, offset, bytes);
}

SOFT_API(cuFuncGetParamCount, (CUfunction handle, size_t *count), (handle, count)) {
    KernelFunctionPtr function;
    if (!count || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = call.require(Needs::Optional))
        return status;
    if (CUresult status = resolve_function(handle, function))
        return status;
    *count = function->kernel->parameters.size();
    return CUDA_SUCCESS;
}

SOFT_API(cuFuncIsLoaded, (CUfunctionLoadingState * loaded, CUfunction handle), (loaded, handle)) {
    KernelFunctionPtr function;
    if (!loaded)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_function(handle, function))
        return status;
    *loaded = static_cast<CUfunctionLoadingState>(1);
    return CUDA_SUCCESS;
}

SOFT_API(cuFuncLoad, (CUfunction handle), (handle)) {
    KernelFunctionPtr function;
    return resolve_function(handle, function);
}

} // namespace soft
