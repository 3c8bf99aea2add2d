#include "state.h"

// cuMemAlloc, stream-ordered and managed memory.

namespace soft {

SOFT_API(cuMemGetInfo_v2, (size_t *available, size_t *total), (available, total)) {
    size_t capacity = state().settings.memory;
    size_t used = call.context->device->used;
    if (available)
        *available = used < capacity ? capacity - used : 0;
    if (total)
        *total = capacity;
    return CUDA_SUCCESS;
}

SOFT_API(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), (address, bytes)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    Allocation *allocation = nullptr;
    if (CUresult status = allocate_device(*call.context, bytes, MemoryKind::Device, allocation))
        return status;
    *address = allocation->begin;
    return CUDA_SUCCESS;
}

// Rows begin where textures may; nobody but the reader of `pitch` can tell the difference.
SOFT_API(cuMemAllocPitch_v2,
         (CUdeviceptr * address, size_t *pitch, size_t width, size_t height, unsigned element),
         (address, pitch, width, height, element)) {
    constexpr size_t alignment = 512;
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    bool known = element == 4 || element == 8 || element == 16;
    if (!address || !pitch || !width || !height || !known)
        return CUDA_ERROR_INVALID_VALUE;
    size_t row, bytes;
    if (__builtin_add_overflow(width, alignment - 1, &row) ||
        __builtin_mul_overflow(row / alignment * alignment, height, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = row / alignment * alignment;
    return cuMemAlloc_v2_body(call, address, bytes);
}

SOFT_API(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned flags),
         (address, bytes, flags)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!address || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    Allocation *allocation = nullptr;
    if (CUresult status =
            allocate_host(*call.context, bytes, MemoryKind::Managed, flags, allocation))
        return status;
    *address = allocation->begin;
    return CUDA_SUCCESS;
}

// The allocation that begins at an address, or null.
static Allocation *find_start(uintptr_t address) {
    Allocation *allocation = find_allocation(address);
    return allocation && allocation->begin == address ? allocation : nullptr;
}

// Waits for the whole device, except for stream-ordered memory: there it frees under pending work.
SOFT_API(cuMemFree_v2, (CUdeviceptr address), (address)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!address)
        return CUDA_SUCCESS;
    Allocation *allocation = find_start(address);
    if (!allocation || allocation->page_locked())
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = context_status(allocation->owner))
        return status;
    if (allocation->kind != MemoryKind::Async) {
        Device *device = allocation->device;
        state().scheduler.finish(call.lock, device_targets(*device));
        if (device->sticky)
            return device->sticky;
        allocation = find_start(address); // another thread may have freed it meanwhile
        if (!allocation)
            return CUDA_ERROR_INVALID_VALUE;
    }
    free_allocation(*allocation);
    return CUDA_SUCCESS;
}

SOFT_STREAM_API(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream handle),
                (address, bytes, handle)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    *address = 0;
    if (!bytes)
        return CUDA_SUCCESS;
    Allocation *allocation = nullptr;
    if (CUresult status = allocate_device(*stream->owner, bytes, MemoryKind::Async, allocation))
        return status;
    auto operation = std::make_shared<Operation>();
    operation->writes.push_back({allocation->begin, bytes});
    if (CUresult status = submit(*stream, std::move(operation))) {
        free_allocation(*allocation);
        return status;
    }
    if (stream->capture)
        stream->capture->memory.push_back(allocation->begin);
    allocation->captured = stream->capture != nullptr;
    *address = allocation->begin;
    return CUDA_SUCCESS;
}

SOFT_STREAM_API(cuMemAllocFromPoolAsync,
                (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
                (address, bytes, pool, stream)) {
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    return cuMemAllocAsync_body(call, address, bytes, stream);
}

// The address is dead for every later call; the memory goes when the stream gets there.
SOFT_STREAM_API(cuMemFreeAsync, (CUdeviceptr address, CUstream handle), (address, handle)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (!address)
        return CUDA_SUCCESS;
    Allocation *allocation = find_start(address);
    if (!allocation || allocation->page_locked())
        return CUDA_ERROR_INVALID_VALUE;
    if (allocation->kind == MemoryKind::Managed)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (stream->capture)
        return capture_node(*stream);
    if (stream->kind == StreamKind::Legacy)
        if (CUresult status = refuse_implicit(*stream->owner))
            return status;
    auto operation = std::make_shared<Operation>();
    Remains remains = forget_allocation(*allocation);
    operation->writes.push_back({remains.begin, remains.bytes});
    operation->kept.emplace_back(nullptr, [=](void *) { give_back(remains); });
    return submit(*stream, std::move(operation));
}

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
