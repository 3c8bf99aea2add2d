#include "api/call.h"
#include "api/state.h"
#include "code/launch.h"

// This file implements the launch functions of CUDA before version 4. A program first stores the
// block shape, the shared memory size and the parameters in the function. They stay there until
// cuLaunchKernel launches the function.

namespace soft {
namespace {

constexpr size_t most_parameters = 32764;
constexpr uint8_t not_set = 0xC0; // value of parameter bytes that the program has not set

OldLaunch &settings_of(KernelFunction &function) {
    if (!function.old_launch)
        function.old_launch = std::make_unique<OldLaunch>();
    return *function.old_launch;
}

CUresult set_parameter(CUfunction handle, int offset, const void *value, size_t bytes) {
    KernelFunctionPtr function;
    if (CUresult status = resolve_function(handle, function))
        return status;
    if (!value || offset < 0 || bytes > most_parameters || offset + bytes > most_parameters)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<uint8_t> &all = settings_of(*function).parameters;
    all.resize(std::max(all.size(), offset + bytes), not_set);
    std::copy_n(static_cast<const uint8_t *>(value), bytes, all.begin() + offset);
    return CUDA_SUCCESS;
}

// Sets `block` to the shape that the program has stored. Without one, uses the shape that the
// kernel requires, or a single thread.
void choose_block(const KernelFunction &function, const OldLaunch &old, unsigned (&block)[3]) {
    const unsigned (&required)[3] = function.kernel->required_threads;
    for (int i = 0; i < 3; i++)
        block[i] = old.block[0] ? old.block[i] : required[0] ? required[i] : 1;
}

CUresult launch_old(Call &call, CUfunction handle, int width, int height, CUstream stream) {
    KernelFunctionPtr function;
    if (CUresult status = resolve_function(handle, function))
        return status;
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    std::unique_ptr<OldLaunch> old = std::move(function->old_launch);
    if (!old)
        old = std::make_unique<OldLaunch>();
    size_t bytes = function->kernel->parameter_bytes;
    CUresult status = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (old->bytes <= bytes) {
        std::vector<uint8_t> parameters(old->parameters);
        parameters.resize(old->bytes, not_set);
        parameters.resize(bytes, not_set);
        void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters.data(),
                         CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
        LaunchRequest request{{static_cast<unsigned>(width), static_cast<unsigned>(height), 1}};
        choose_block(*function, *old, request.block);
        request.shared = old->shared;
        request.extra = extra;
        status = launch(call, handle, request, stream);
    }
    function->old_launch = std::move(old);
    return status;
}

} // namespace

SOFT_API(cuFuncSetBlockShape, (CUfunction handle, int x, int y, int z), (handle, x, y, z)) {
    KernelFunctionPtr function;
    if (CUresult status = resolve_function(handle, function))
        return status;
    unsigned block[] = {static_cast<unsigned>(x), static_cast<unsigned>(y),
                        static_cast<unsigned>(z)};
    if (!valid_block(*function->kernel, block))
        return CUDA_ERROR_INVALID_VALUE;
    std::copy_n(block, 3, settings_of(*function).block);
    return CUDA_SUCCESS;
}

SOFT_API(cuFuncSetSharedSize, (CUfunction handle, unsigned bytes), (handle, bytes)) {
    KernelFunctionPtr function;
    if (CUresult status = resolve_function(handle, function))
        return status;
    if (bytes > dynamic_shared_limit(*function->kernel, function->settings))
        return CUDA_ERROR_INVALID_VALUE;
    settings_of(*function).shared = bytes;
    return CUDA_SUCCESS;
}

SOFT_API(cuParamSetSize, (CUfunction handle, unsigned bytes), (handle, bytes)) {
    KernelFunctionPtr function;
    if (CUresult status = resolve_function(handle, function))
        return status;
    if (bytes > most_parameters)
        return CUDA_ERROR_INVALID_VALUE;
    settings_of(*function).bytes = bytes;
    return CUDA_SUCCESS;
}

SOFT_API(cuParamSeti, (CUfunction handle, int offset, unsigned value), (handle, offset, value)) {
    return set_parameter(handle, offset, &value, sizeof value);
}

SOFT_API(cuParamSetf, (CUfunction handle, int offset, float value), (handle, offset, value)) {
    return set_parameter(handle, offset, &value, sizeof value);
}

SOFT_API(cuParamSetv, (CUfunction handle, int offset, void *value, unsigned bytes),
         (handle, offset, value, bytes)) {
    return set_parameter(handle, offset, value, bytes);
}

// Only checks its arguments: a kernel can read through every reference of its module. As on an
// H200, something must be bound to the reference, and the unit 0 is accepted, too.
SOFT_API(cuParamSetTexRef, (CUfunction handle, int unit, CUtexref reference),
         (handle, unit, reference)) {
    KernelFunctionPtr function;
    if (CUresult status = resolve_function(handle, function))
        return status;
    TextureReferencePtr found = find_reference(reference, false);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    bool known = unit == CU_PARAM_TR_DEFAULT || unit == 0;
    return known && found->bound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuLaunch, (CUfunction handle), (handle)) {
    return launch_old(call, handle, 1, 1, nullptr);
}

SOFT_API(cuLaunchGrid, (CUfunction handle, int width, int height), (handle, width, height)) {
    return launch_old(call, handle, width, height, nullptr);
}

SOFT_API(cuLaunchGridAsync, (CUfunction handle, int width, int height, CUstream stream),
         (handle, width, height, stream)) {
    return launch_old(call, handle, width, height, stream);
}

} // namespace soft
