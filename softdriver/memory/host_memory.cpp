#include "api/call.h"
#include "api/state.h"
#include "memory/host_pages.h"

// Page-locked memory: allocated by the driver, or registered by the program.

namespace soft {
namespace {

constexpr unsigned alloc_flags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
// The flags that are supported. CU_MEMHOSTREGISTER_IOMEMORY is not, because there is no memory of
// I/O devices.
constexpr unsigned register_flags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;

// Returns the page-locked allocation that contains the address, or null. Memory of a pool or of a
// graph does not count, because other functions free it.
Allocation *find_locked(void *address) {
    Allocation *allocation = find_allocation(reinterpret_cast<uintptr_t>(address));
    bool found =
        allocation && allocation->page_locked() && !allocation->pool && !allocation->captured;
    return found ? allocation : nullptr;
}

// Returns the page-locked allocation of this kind that begins at the address, or null.
Allocation *find_start(void *address, MemoryKind kind) {
    Allocation *allocation = find_locked(address);
    bool starts = allocation && allocation->kind == kind &&
                  allocation->begin == reinterpret_cast<uintptr_t>(address);
    return starts ? allocation : nullptr;
}

// Returns an error if one of these bytes is already in an allocation that the driver knows.
CUresult refuse_known(uintptr_t begin, size_t bytes) {
    const Allocation *first = find_allocation(begin);
    auto next = state().allocations.lower_bound(first ? first->begin : begin);
    CUresult status = CUDA_SUCCESS;
    for (; next != state().allocations.end(); ++next) {
        if (next->first > begin && next->first - begin >= bytes)
            break;
        if (next->second.kind == MemoryKind::Registered)
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        status = CUDA_ERROR_INVALID_VALUE;
    }
    return status;
}

// Waits for the whole device, then frees the memory. Every free of memory that the host can access
// waits in this way.
CUresult remove(Call &call, void *address, MemoryKind kind, CUresult unknown) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    Allocation *allocation = find_start(address, kind);
    if (!allocation)
        return unknown;
    if (CUresult status = context_status(allocation->owner))
        return status;
    state().races.freed_by_host(*allocation);
    Device *device = allocation->device;
    state().scheduler.finish(call.lock, device_targets(*device));
    if (device->sticky)
        return device->sticky;
    allocation = find_start(address, kind);
    if (!allocation)
        return unknown;
    free_allocation(*allocation);
    return CUDA_SUCCESS;
}

} // namespace

SOFT_API(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags), (address, bytes, flags)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    *address = nullptr;
    if (flags & ~alloc_flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!bytes)
        return CUDA_SUCCESS;
    Allocation *allocation = nullptr;
    if (CUresult status = allocate_host(*call.context, bytes, flags, allocation))
        return status;
    *address = reinterpret_cast<void *>(allocation->begin);
    return CUDA_SUCCESS;
}

SOFT_API(cuMemAllocHost_v2, (void **address, size_t bytes), (address, bytes)) {
    return cuMemHostAlloc_body(call, address, bytes, 0);
}

SOFT_API(cuMemFreeHost, (void *address), (address)) {
    return remove(call, address, MemoryKind::Host,
                  address ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

SOFT_API(cuMemHostRegister_v2, (void *address, size_t bytes, unsigned flags),
         (address, bytes, flags)) {
    auto begin = reinterpret_cast<uintptr_t>(address);
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (never_host_memory(begin) || !bytes || begin + bytes < begin || (flags & ~register_flags))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = refuse_known(begin, bytes))
        return status;
    if (!is_mapped(begin, bytes, !(flags & CU_MEMHOSTREGISTER_READ_ONLY)))
        return CUDA_ERROR_INVALID_VALUE;
    register_host(*call.context, address, bytes, flags);
    find_allocation(begin)->of_others = is_shared(begin, bytes);
    return CUDA_SUCCESS;
}

SOFT_API(cuMemHostRegister, (void *address, size_t bytes, unsigned flags),
         (address, bytes, flags)) {
    return cuMemHostRegister_v2_body(call, address, bytes, flags);
}

SOFT_API(cuMemHostUnregister, (void *address), (address)) {
    // If no registration begins at the address, the error says whether the driver knows the memory.
    bool known = !address || find_allocation(reinterpret_cast<uintptr_t>(address));
    return remove(call, address, MemoryKind::Registered,
                  known ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

SOFT_API(cuMemHostGetDevicePointer_v2, (CUdeviceptr * result, void *address, unsigned flags),
         (result, address, flags)) {
    if (!result || flags || !find_locked(address))
        return CUDA_ERROR_INVALID_VALUE;
    *result = reinterpret_cast<uintptr_t>(address);
    return CUDA_SUCCESS;
}

SOFT_API(cuMemHostGetFlags, (unsigned *flags, void *address), (flags, address)) {
    const Allocation *allocation = find_allocation(reinterpret_cast<uintptr_t>(address));
    if (!flags || !allocation || allocation->on_device() || allocation->pool)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned given = allocation->page_locked() ? allocation->flags & alloc_flags : 0;
    *flags = given | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

} // namespace soft
