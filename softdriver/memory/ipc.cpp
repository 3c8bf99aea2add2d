#include "memory/ipc.h"

#include "api/call.h"
#include "api/state.h"
#include "base/undefined.h"
#include "memory/device_memory.h"

#include <cstddef>
#include <cstring>
#include <unistd.h>

// Memory that several processes use: cuIpcGetMemHandle and its counterparts. Pools export and
// import their memory by the same functions (ipc_pool.cpp).

namespace soft {
namespace {

constexpr uint64_t memory_magic = 0x31304d4550435543; // "CUCPEM01"

// A checksum, so that a damaged handle is found before its numbers are used.
uint64_t checksum(const SharedMemory &handle) {
    unsigned char bytes[offsetof(SharedMemory, check)];
    std::memcpy(bytes, &handle, sizeof(bytes));
    uint64_t sum = 0xcbf29ce484222325;
    for (unsigned char byte : bytes)
        sum = (sum ^ byte) * 0x100000001b3;
    return sum;
}

ProcessId owner_of(const SharedMemory &handle) { return {handle.pid, handle.start}; }

// Opens the file with the memory of a handle. Returns an error if the handle is invalid or the
// memory was freed.
CUresult open_memory(const SharedMemory &handle, uint64_t magic, const char *name, int &file) {
    uint64_t end, id = 0;
    if (handle.magic != magic || handle.check != checksum(handle) || !handle.bytes || !handle.id ||
        __builtin_add_overflow(handle.offset, handle.bytes, &end) || handle.place < end ||
        __builtin_add_overflow(handle.place, sizeof(id), &end))
        return CUDA_ERROR_INVALID_VALUE;
    if (owner_of(handle) == this_process())
        return CUDA_ERROR_INVALID_CONTEXT; // a process cannot open its own memory
    if (!is_alive(owner_of(handle)))
        return CUDA_ERROR_INVALID_HANDLE;
    file = open_shared_file(owner_of(handle), handle.file, name, end);
    if (file < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (pread(file, &id, sizeof(id), static_cast<off_t>(handle.place)) == sizeof(id) &&
        id == handle.id)
        return CUDA_SUCCESS;
    close(file);
    return CUDA_ERROR_INVALID_VALUE;
}

// Writes the fields of a handle of the allocation, except `magic` and the checksum. Returns false
// if the system has no more files or memory.
bool publish(const Allocation &allocation, SharedMemory &made) {
    ProcessId owner = this_process();
    made.pid = owner.pid;
    made.start = owner.start;
    made.bytes = allocation.bytes;
    made.id = allocation.id;
    if (allocation.kind == MemoryKind::Host) {
        HostFile &file = *allocation.pool->file;
        made.file = file.number();
        made.offset = file.offset_of(allocation.host);
        made.place = file.publish(allocation.host, allocation.id);
        return made.place != 0;
    }
    Arena &arena = allocation.device->arena;
    made.file = arena.share(allocation.begin, allocation.bytes);
    made.offset = arena.offset_of(allocation.begin);
    made.place = made.file < 0 ? 0 : arena.publish(allocation.id);
    return made.place != 0;
}

CUresult map_host(const Context &context, int file, uint64_t offset, size_t bytes,
                  Allocation *&result) {
    char *address = offset % Arena::page ? nullptr : map_host_file(file, offset, bytes);
    if (!address)
        return CUDA_ERROR_OUT_OF_MEMORY;
    place_imported_host(context, address, bytes, result);
    return CUDA_SUCCESS;
}

} // namespace

Device *device_at(uint32_t place) {
    for (const auto &device : state().devices)
        if (static_cast<uint32_t>(device->place) == place)
            return device.get();
    return nullptr;
}

CUresult export_memory(Lock &lock, uintptr_t address, uint64_t magic, SharedMemory &handle) {
    // The pages of a device's memory move, so nothing may be running that uses them.
    state().scheduler.settle(lock, [](const Stream &) { return true; });
    Allocation *allocation = find_allocation(address);
    if (!allocation)
        return CUDA_ERROR_INVALID_VALUE;
    if (!allocation->sharing) {
        auto sharing = std::make_shared<Sharing>();
        if (!publish(*allocation, sharing->handle))
            return CUDA_ERROR_OUT_OF_MEMORY;
        allocation->sharing = std::move(sharing);
        undefined_memory().untrack(allocation->begin, allocation->bytes); // others may write it
    }
    state().chooser.limit(explore::Limit::Shared);
    handle = allocation->sharing->handle;
    handle.magic = magic;
    handle.check = checksum(handle);
    return CUDA_SUCCESS;
}

CUresult import_memory(const Context &context, Device &device, MemoryKind kind,
                       const SharedMemory &handle, uint64_t magic, Allocation *&result) {
    bool host = kind == MemoryKind::Host;
    int file = -1;
    if (CUresult status =
            open_memory(handle, magic, host ? HostFile::name : Arena::file_name, file))
        return status;
    auto bytes = static_cast<size_t>(handle.bytes);
    CUresult status =
        host ? map_host(context, file, handle.offset, bytes, result)
             : place_imported(context, device, kind, file, handle.offset, bytes, result);
    close(file);
    if (status)
        return status == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_MAP_FAILED : status;
    result->sharing = std::make_shared<Sharing>();
    result->sharing->handle = handle;
    result->sharing->imported = true;
    state().chooser.limit(explore::Limit::Shared);
    return CUDA_SUCCESS;
}

void stop_sharing(Device &device, const Sharing &sharing) {
    if (!sharing.imported)
        device.arena.withdraw(sharing.handle.place);
}

SOFT_API(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address), (handle, address)) {
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    const Allocation *allocation = find_visible(address);
    if (!allocation || allocation->kind != MemoryKind::Device || allocation->of_module ||
        allocation->reservation || !allocation->graph.expired() ||
        (allocation->sharing && allocation->sharing->imported))
        return CUDA_ERROR_INVALID_VALUE;
    SharedMemory made;
    if (CUresult status = export_memory(call.lock, address, memory_magic, made))
        return status;
    std::memcpy(handle, &made, sizeof(made));
    return CUDA_SUCCESS;
}

SOFT_API(cuIpcOpenMemHandle_v2, (CUdeviceptr * address, CUipcMemHandle given, unsigned flags),
         (address, given, flags)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    SharedMemory handle;
    std::memcpy(&handle, &given, sizeof(handle));
    for (auto &entry : state().allocations) {
        Allocation &known = entry.second;
        if (known.sharing && known.sharing->opened && known.owner == call.context.get() &&
            std::memcmp(&known.sharing->handle, &handle, sizeof(handle)) == 0) {
            known.sharing->opened++;
            *address = known.begin;
            return CUDA_SUCCESS;
        }
    }
    Allocation *allocation = nullptr;
    if (CUresult status = import_memory(*call.context, *call.context->device, MemoryKind::Device,
                                        handle, memory_magic, allocation))
        return status;
    allocation->sharing->opened = 1;
    *address = allocation->begin;
    return CUDA_SUCCESS;
}

SOFT_API(cuIpcOpenMemHandle, (CUdeviceptr * address, CUipcMemHandle given, unsigned flags),
         (address, given, flags)) {
    return cuIpcOpenMemHandle_v2_body(call, address, given, flags);
}

SOFT_API(cuIpcCloseMemHandle, (CUdeviceptr address), (address)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    Allocation *allocation = find_start(address);
    if (!allocation || !allocation->sharing || !allocation->sharing->opened)
        return CUDA_ERROR_INVALID_VALUE;
    if (allocation->sharing->opened > 1) {
        allocation->sharing->opened--;
        return CUDA_SUCCESS;
    }
    return free_device_memory(call, address);
}

} // namespace soft
