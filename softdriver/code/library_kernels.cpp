#include "api/call.h"
#include "api/state.h"
#include "code/code_library.h"
#include "code/launch.h"

// This file implements cuKernel*, for the kernels of libraries.

namespace soft {

LibraryKernelPtr find_library_kernel(CUkernel handle) {
    return state().kernels.find(reinterpret_cast<uintptr_t>(handle));
}

CUresult function_in(LibraryKernel &kernel, const ContextPtr &context,
                     KernelFunctionPtr &function) {
    ModulePtr module;
    if (CUresult status = module_of(kernel.library, context, module))
        return status;
    bool is_new = !module->functions[kernel.index];
    function = function_of(module, kernel.index);
    if (is_new)
        function->settings = kernel.settings[context->device->ordinal];
    return CUDA_SUCCESS;
}

SOFT_API(cuKernelGetFunction, (CUfunction * result, CUkernel handle), (result, handle)) {
    LibraryKernelPtr kernel = find_library_kernel(handle);
    if (!result)
        return CUDA_ERROR_INVALID_VALUE;
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    KernelFunctionPtr function;
    if (CUresult status = function_in(*kernel, call.context, function))
        return status;
    *result = function->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuKernelGetLibrary, (CUlibrary * library, CUkernel handle), (library, handle)) {
    LibraryKernelPtr kernel = find_library_kernel(handle);
    if (!library)
        return CUDA_ERROR_INVALID_VALUE;
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    *library = kernel->library->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuKernelGetName, (const char **name, CUkernel handle), (name, handle)) {
    LibraryKernelPtr kernel = find_library_kernel(handle);
    if (!name || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    *name = kernel->kernel().name.c_str();
    return CUDA_SUCCESS;
}

// Finds the kernel whose parameters a program asks for.
static CUresult find_asked(Call &call, CUkernel handle, const void *result,
                           LibraryKernelPtr &kernel) {
    if (!result || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = call.require(Needs::Usable))
        return status;
    kernel = find_library_kernel(handle);
    return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFT_API(cuKernelGetParamInfo, (CUkernel handle, size_t index, size_t *offset, size_t *bytes),
         (handle, index, offset, bytes)) {
    LibraryKernelPtr kernel;
    if (CUresult status = find_asked(call, handle, offset, kernel))
        return status;
    return read_parameter(kernel->kernel(), index, offset, bytes);
}

SOFT_API(cuKernelGetParamCount, (CUkernel handle, size_t *count), (handle, count)) {
    LibraryKernelPtr kernel;
    if (CUresult status = find_asked(call, handle, count, kernel))
        return status;
    *count = kernel->kernel().parameters.size();
    return CUDA_SUCCESS;
}

SOFT_API(cuKernelGetAttribute,
         (int *value, CUfunction_attribute attribute, CUkernel handle, CUdevice ordinal),
         (value, attribute, handle, ordinal)) {
    LibraryKernelPtr kernel = find_library_kernel(handle);
    const Device *device = find_device(ordinal);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    return read_function_attribute(*kernel->library->program, kernel->kernel(),
                                   kernel->settings[ordinal], attribute, value);
}

SOFT_API(cuKernelSetAttribute,
         (CUfunction_attribute attribute, int value, CUkernel handle, CUdevice ordinal),
         (attribute, value, handle, ordinal)) {
    LibraryKernelPtr kernel = find_library_kernel(handle);
    const Device *device = find_device(ordinal);
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    // Also set the attribute in the contexts that have loaded the kernel. A later
    // cuFuncSetAttribute can change it for one of these contexts.
    for (const auto &loaded : kernel->library->modules)
        if (loaded.first->device == device && loaded.second->functions[kernel->index])
            write_function_attribute(kernel->kernel(),
                                     function_of(loaded.second, kernel->index)->settings, attribute,
                                     value);
    return write_function_attribute(kernel->kernel(), kernel->settings[ordinal], attribute, value);
}

SOFT_API(cuKernelSetCacheConfig, (CUkernel handle, CUfunc_cache config, CUdevice ordinal),
         (handle, config, ordinal)) {
    if (!find_library_kernel(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!find_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    return valid_cache(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

} // namespace soft
