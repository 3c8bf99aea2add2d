#include "api/call.h"
#include "api/state.h"

// This file implements peer access. All software devices can be peers.

namespace soft {
namespace {

// The value of CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED, which older headers
// lack.
constexpr int partial_native_atomics = 5;

} // namespace

SOFT_API(cuDeviceCanAccessPeer, (int *can, CUdevice ordinal, CUdevice peer), (can, ordinal, peer)) {
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!find_device(ordinal) || !find_device(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = ordinal != peer;
    return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetP2PAttribute,
         (int *value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice target),
         (value, attribute, source, target)) {
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!find_device(source) || !find_device(target) || source == target)
        return CUDA_ERROR_INVALID_DEVICE;
    switch (static_cast<int>(attribute)) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED: // no peer access to arrays
    case partial_native_atomics:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SOFT_API(cuCtxEnablePeerAccess, (CUcontext handle, unsigned flags), (handle, flags)) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    ContextPtr peer = find_context(handle);
    if (CUresult status = context_status(peer.get()))
        return status;
    if (peer->device == call.context->device)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (!call.context->peers.insert(peer->id).second)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxDisablePeerAccess, (CUcontext handle), (handle)) {
    ContextPtr peer = find_context(handle);
    if (CUresult status = context_status(peer.get()))
        return status;
    return call.context->peers.erase(peer->id) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

} // namespace soft
