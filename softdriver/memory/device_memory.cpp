#include "memory/device_memory.h"
#include "api/call.h"
#include "api/state.h"
#include "memory/ipc.h"

// cuMemAlloc, and cuMemFree, which frees device, stream-ordered and managed memory.

namespace soft {

SOFT_API(cuMemGetInfo_v2, (size_t *available, size_t *total), (available, total)) {
    size_t capacity = state().settings.memory;
    const Device &device = *call.context->device;
    size_t used = device.used + device.resident;
    if (available)
        *available = used < capacity ? capacity - used : 0;
    if (total)
        *total = capacity;
    return CUDA_SUCCESS;
}

bool finish_frees(Lock &lock, const Device &device) {
    std::vector<OperationPtr> frees;
    for (const auto &entry : state().pools)
        if (entry.second->device == &device)
            for (auto &operation : entry.second->pending())
                frees.push_back(std::move(operation));
    state().scheduler.finish(lock, frees);
    return !frees.empty();
}

CUresult allocate_or_wait(Call &call, size_t bytes, MemoryKind kind, Allocation *&allocation) {
    CUresult status = allocate_device(*call.context, bytes, kind, allocation);
    if (status == CUDA_ERROR_OUT_OF_MEMORY && finish_frees(call.lock, *call.context->device)) {
        if (CUresult lost = context_status(call.context.get()))
            return lost;
        status = allocate_device(*call.context, bytes, kind, allocation);
    }
    return status;
}

SOFT_API(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), (address, bytes)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    *address = 0;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    Allocation *allocation = nullptr;
    CUresult status = allocate_or_wait(call, bytes, MemoryKind::Device, allocation);
    if (status == CUDA_SUCCESS)
        *address = allocation->begin;
    return status;
}

// The pitch is aligned as textures need it. That is the only difference from cuMemAlloc.
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

bool device_free_waits() {
    switch (state().settings.free_waits) {
    case FreeWaits::Always:
        return true;
    case FreeWaits::Never:
        return false;
    default:
        if (state().settings.schedule < Schedule::Random)
            return true;
        if (state().scheduler.pending())
            state().chooser.may_wait();
        return state().chooser.draw(explore::Choice::FreeWaits, 2);
    }
}

// Returns whether cuMemFree waits for the device. When it frees memory of a pool, it never waits;
// for other managed memory, it always waits.
static bool free_waits(const Allocation &allocation) {
    if (allocation.pool || allocation.kind == MemoryKind::Async)
        return false;
    return allocation.kind == MemoryKind::Managed || device_free_waits();
}

// Like find_start(), but also finds the memory of arrays.
static Allocation *find_freeable(CUdeviceptr address) {
    Allocation *memory = find_reserved(address, 1);
    return memory && memory->begin == address ? memory : nullptr;
}

CUresult free_device_memory(Call &call, CUdeviceptr address) {
    Allocation *allocation = find_freeable(address);
    if (CUresult status = allocation->owner ? context_status(allocation->owner) : CUDA_SUCCESS)
        return status;
    state().races.freed_by_host(*allocation);
    if (free_waits(*allocation)) {
        Device *device = allocation->device;
        state().scheduler.finish(call.lock, device_targets(*device));
        if (device->sticky)
            return device->sticky;
        allocation = find_freeable(address); // another thread may have freed the memory meanwhile
        if (!allocation)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (allocation->graph.expired())
        free_allocation(*allocation);
    else
        set_there(*allocation, false); // the address still belongs to the graph
    return CUDA_SUCCESS;
}

SOFT_API(cuMemFree_v2, (CUdeviceptr address), (address)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!address)
        return CUDA_SUCCESS;
    const Allocation *allocation = find_start(address);
    if (!allocation || (allocation->page_locked() && !allocation->pool) || allocation->captured ||
        allocation->of_module || allocation->reservation ||
        (allocation->sharing && allocation->sharing->opened))
        return CUDA_ERROR_INVALID_VALUE;
    return free_device_memory(call, address);
}

} // namespace soft
