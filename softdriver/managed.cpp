#include "state.h"

namespace soft {

static CUresult submit_prefetch(Call &call, CUdeviceptr address, size_t bytes, bool to_device,
                                CUdevice ordinal, CUstream handle) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    const Allocation *allocation = bytes ? find_range(address, bytes) : nullptr;
    if (!allocation || allocation->kind != MemoryKind::Managed)
        return CUDA_ERROR_INVALID_VALUE;
    if (to_device && (!find_device(ordinal) || !state().settings.concurrent_managed))
        return CUDA_ERROR_INVALID_DEVICE;
    return submit(*stream, std::make_shared<Operation>());
}

SOFT_STREAM_API(cuMemPrefetchAsync,
                (CUdeviceptr address, size_t bytes, CUdevice target, CUstream stream),
                (address, bytes, target, stream)) {
    return submit_prefetch(call, address, bytes, target != CU_DEVICE_CPU, target, stream);
}

SOFT_STREAM_API(cuMemPrefetchAsync_v2,
                (CUdeviceptr address, size_t bytes, CUmemLocation target, unsigned flags,
                 CUstream stream),
                (address, bytes, target, flags, stream)) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    bool to_device = target.type == CU_MEM_LOCATION_TYPE_DEVICE;
    return submit_prefetch(call, address, bytes, to_device, target.id, stream);
}

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice) {
    const Allocation *allocation = bytes ? find_range(address, bytes) : nullptr;
    if (!allocation || allocation->kind != MemoryKind::Managed)
        return CUDA_ERROR_INVALID_VALUE;
    bool known =
        advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuMemAdvise, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
         (address, bytes, advice, device)) {
    if (device != CU_DEVICE_CPU && !find_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return advise(address, bytes, advice);
}

SOFT_API(cuMemAdvise_v2,
         (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location),
         (address, bytes, advice, location)) {
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && !find_device(location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    return advise(address, bytes, advice);
}

} // namespace soft
