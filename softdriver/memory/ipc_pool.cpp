#include "api/call.h"
#include "api/state.h"
#include "memory/ipc.h"

#include <cstring>
#include <fcntl.h>
#include <unistd.h>

// Pools that several processes use. A pool is exported as a file. Each allocation of it is exported
// separately.

namespace soft {
namespace {

constexpr uint64_t pool_magic = 0x32304c4f4f505543;    // "CUPOOL02"
constexpr uint64_t pointer_magic = 0x3130525450505543; // "CUPPTR01"
constexpr const char *pool_file = "cudadrv-pool";

// The contents of the file of an exported pool.
struct SharedPool {
    uint64_t magic = 0;
    uint32_t pid = 0;
    uint32_t place = 0; // index among all devices, before CUDA_VISIBLE_DEVICES selects some
    uint64_t start = 0;
    uint64_t of_host = 0; // 1 for a pool of the host, which has no device
    uint64_t number = 0;  // number of the pool in the exporting process
};

// Handles of memory of different pools have different magic numbers.
uint64_t magic_of(const Pool &pool) { return pointer_magic ^ pool.number << 16; }

bool is_exported(const Pool *pool) {
    return pool && !pool->imported &&
           (pool->handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

} // namespace

SOFT_API(cuMemPoolExportToShareableHandle,
         (void *handle, CUmemoryPool pool_handle, CUmemAllocationHandleType type,
          unsigned long long flags),
         (handle, pool_handle, type, flags)) {
    PoolPtr pool = find_pool(pool_handle);
    if (!handle || !is_exported(pool.get()) || flags ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    ProcessId owner = this_process();
    SharedPool shared;
    shared.magic = pool_magic;
    shared.pid = owner.pid;
    shared.start = owner.start;
    shared.number = pool->number;
    shared.of_host = !pool->device;
    if (pool->device)
        shared.place = static_cast<uint32_t>(pool->device->place);
    int file = create_shared_file(pool_file, sizeof(shared));
    if (file < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (pwrite(file, &shared, sizeof(shared), 0) != sizeof(shared)) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    std::memcpy(handle, &file, sizeof(file));
    return CUDA_SUCCESS;
}

SOFT_API(cuMemPoolImportFromShareableHandle,
         (CUmemoryPool * pool_handle, void *handle, CUmemAllocationHandleType type,
          unsigned long long flags),
         (pool_handle, handle, type, flags)) {
    if (!pool_handle || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    // The handle is the file descriptor itself.
    int file = static_cast<int>(reinterpret_cast<intptr_t>(handle));
    SharedPool shared;
    if (fcntl(file, F_GET_SEALS) < 0 || // only files in memory have seals
        pread(file, &shared, sizeof(shared), 0) != sizeof(shared) || shared.magic != pool_magic)
        return CUDA_ERROR_INVALID_VALUE;
    Device *device = device_at(shared.place);
    if (!shared.of_host && !device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!is_alive({shared.pid, shared.start}))
        return CUDA_ERROR_INVALID_VALUE;
    PoolPlace place{MemoryKind::Host, make_location(location_numa, 0), nullptr};
    if (!shared.of_host)
        place = {MemoryKind::Async, make_location(location_device, device->ordinal), device};
    PoolPtr pool = create_pool(place);
    pool->imported = true;
    pool->owner = {shared.pid, shared.start};
    pool->number = shared.number;
    *pool_handle = pool->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuMemPoolExportPointer, (CUmemPoolPtrExportData * data, CUdeviceptr address),
         (data, address)) {
    const Allocation *allocation = find_visible(address);
    if (!data || !allocation || !is_exported(allocation->pool.get()))
        return CUDA_ERROR_INVALID_VALUE;
    SharedMemory made;
    if (CUresult status = export_memory(call.lock, address, magic_of(*allocation->pool), made))
        return status;
    std::memcpy(data, &made, sizeof(made));
    return CUDA_SUCCESS;
}

SOFT_API(cuMemPoolImportPointer,
         (CUdeviceptr * address, CUmemoryPool pool_handle, CUmemPoolPtrExportData *data),
         (address, pool_handle, data)) {
    PoolPtr pool = find_pool(pool_handle);
    if (!address || !data || !pool || !pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    SharedMemory handle;
    std::memcpy(&handle, data, sizeof(handle));
    if (ProcessId{handle.pid, handle.start} != pool->owner)
        return CUDA_ERROR_INVALID_VALUE;
    Allocation *allocation = nullptr;
    Device &device = pool->device ? *pool->device : *call.context->device;
    if (CUresult status =
            import_memory(*call.context, device, pool->kind, handle, magic_of(*pool), allocation))
        return status;
    allocation->pool = pool;
    *address = allocation->begin;
    return CUDA_SUCCESS;
}

} // namespace soft
