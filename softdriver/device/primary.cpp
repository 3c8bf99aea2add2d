#include "api/call.h"
#include "api/state.h"

// This file implements primary contexts. A device has one, which all parts of a program share.

namespace soft {

// A primary context always has the flag CU_CTX_MAP_HOST. cuCtxGetFlags reports this flag, but
// cuDevicePrimaryCtxGetState does not.
static void set_primary_flags(Device &device, unsigned flags) {
    device.primary_flags = flags;
    if (device.primary)
        device.primary->flags = flags | CU_CTX_MAP_HOST;
}

CUresult retain_primary(Device &device, ContextPtr &context) {
    if (device.sticky)
        return device.sticky;
    if (!device.primary)
        device.primary = create_context(device, 0, true);
    else if (!device.primary->alive)
        revive_context(device.primary);
    set_primary_flags(device, device.primary_flags);
    device.primary_retains++;
    context = device.primary;
    return CUDA_SUCCESS;
}

CUresult release_primary(Lock &lock, Device &device) {
    if (!device.primary_retains)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--device.primary_retains)
        return CUDA_SUCCESS;
    ContextPtr primary = device.primary;
    if (primary->alive)
        finish_context(lock, *primary);
    // finish_context() releases the lock, so another thread may have retained or destroyed the
    // context.
    if (primary->alive && !device.primary_retains)
        destroy_context(lock, primary);
    return CUDA_SUCCESS;
}

SOFT_API(cuDevicePrimaryCtxRetain, (CUcontext * handle, CUdevice ordinal), (handle, ordinal)) {
    Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context;
    if (CUresult status = retain_primary(*device, context))
        return status;
    *handle = context->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuDevicePrimaryCtxRelease_v2, (CUdevice ordinal), (ordinal)) {
    Device *device = find_device(ordinal);
    return device ? release_primary(call.lock, *device) : CUDA_ERROR_INVALID_DEVICE;
}

// Destroys the primary context even if it is retained. The count of retains does not change.
SOFT_API(cuDevicePrimaryCtxReset_v2, (CUdevice ordinal), (ordinal)) {
    Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (device->primary && device->primary->alive)
        destroy_context(call.lock, ContextPtr(device->primary));
    return CUDA_SUCCESS;
}

SOFT_API(cuDevicePrimaryCtxGetState, (CUdevice ordinal, unsigned *flags, int *active),
         (ordinal, flags, active)) {
    Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = device->primary_flags;
    *active = device->primary && device->primary->alive;
    return CUDA_SUCCESS;
}

SOFT_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice ordinal, unsigned flags), (ordinal, flags)) {
    Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!valid_context_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    set_primary_flags(*device, flags);
    return CUDA_SUCCESS;
}

// The first versions of these functions (without _v2) behave like the _v2 versions.
SOFT_API(cuDevicePrimaryCtxRelease, (CUdevice ordinal), (ordinal)) {
    return cuDevicePrimaryCtxRelease_v2_body(call, ordinal);
}

SOFT_API(cuDevicePrimaryCtxReset, (CUdevice ordinal), (ordinal)) {
    return cuDevicePrimaryCtxReset_v2_body(call, ordinal);
}

SOFT_API(cuDevicePrimaryCtxSetFlags, (CUdevice ordinal, unsigned flags), (ordinal, flags)) {
    return cuDevicePrimaryCtxSetFlags_v2_body(call, ordinal, flags);
}

} // namespace soft
