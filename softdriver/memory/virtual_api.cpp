#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"
#include "memory/location.h"
#include "stream/stream.h"

#include <sys/mman.h>
#include <unistd.h>

// Virtual memory management: cuMemAddressReserve, cuMemCreate, cuMemMap, cuMemSetAccess and related
// functions. Memory of devices is supported; memory of the host is not. virtual_share.cpp has
// memory that processes share.

namespace soft {
namespace {

// Types of handles by which a program may want to export memory.
constexpr int exportable_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

bool is_multiple(uint64_t number) { return number % virtual_granularity == 0; }

// Checks the properties that the program wants for new memory, and finds its device.
CUresult check_properties(const CUmemAllocationProp *wanted, Device *&device) {
    if (!wanted || wanted->type != CU_MEM_ALLOCATION_TYPE_PINNED || wanted->win32HandleMetaData)
        return CUDA_ERROR_INVALID_VALUE;
    int kind = static_cast<int>(wanted->location.type);
    if (kind == location_host || kind == location_numa)
        return not_supported("memory of the host (location.type " + std::to_string(kind) + ")");
    if (kind != location_device)
        return CUDA_ERROR_INVALID_VALUE;
    device = find_device(wanted->location.id);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    int types = static_cast<int>(wanted->requestedHandleTypes);
    if (types & ~exportable_types)
        return not_supported("requestedHandleTypes " + std::to_string(types) +
                             ": only file descriptors (1) are");
    if (wanted->allocFlags.compressionType > CU_MEM_ALLOCATION_COMP_GENERIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (wanted->allocFlags.gpuDirectRDMACapable || wanted->allocFlags.usage)
        return not_supported("allocFlags.gpuDirectRDMACapable and allocFlags.usage");
    return CUDA_SUCCESS;
}

// Finds reserved addresses that contain the whole range. Returns null if there are none, or if the
// range is empty or does not begin at a multiple of the granularity.
Allocation *find_reserved_range(CUdeviceptr begin, size_t bytes) {
    if (!bytes || !is_multiple(begin))
        return nullptr;
    Allocation *reserved = find_reserved(begin, bytes);
    return reserved && reserved->reservation ? reserved : nullptr;
}

// Like find_reserved_range(), but returns null if a mapping is only partly in the range. The range
// may have no mapping at all.
Allocation *find_uncut_range(CUdeviceptr begin, size_t bytes) {
    Allocation *reserved = find_reserved_range(begin, bytes);
    return reserved && is_multiple(bytes) && reserved->reservation->cuts_none({begin, bytes})
               ? reserved
               : nullptr;
}

// Like find_reserved_range(), but returns null unless the range consists of whole mappings.
Allocation *find_mapped_range(CUdeviceptr begin, size_t bytes) {
    Allocation *reserved = find_reserved_range(begin, bytes);
    return reserved && reserved->reservation->is_whole({begin, bytes}) ? reserved : nullptr;
}

// Finds the mapping that contains an address, or null.
const Mapping *find_mapping(CUdeviceptr address) {
    const Allocation *allocation = find_allocation(address);
    return allocation && allocation->reservation ? allocation->reservation->find(address) : nullptr;
}

// `missing` is the error for a device that is not there.
CUresult device_of(const CUmemLocation &location, CUresult missing, const Device *&device) {
    if (static_cast<int>(location.type) != location_device)
        return CUDA_ERROR_INVALID_VALUE;
    device = find_device(location.id);
    return device ? CUDA_SUCCESS : missing;
}

CUresult sticky_error() {
    for (const auto &device : state().devices)
        if (device->sticky)
            return device->sticky;
    return CUDA_SUCCESS;
}

// Waits for all work of all devices. If this work has lost a device, returns the device's sticky
// error.
CUresult finish_devices(Lock &lock) {
    std::vector<OperationPtr> targets;
    for (const auto &device : state().devices)
        for (OperationPtr &operation : device_targets(*device))
            targets.push_back(std::move(operation));
    state().scheduler.finish(lock, targets);
    return sticky_error();
}

// Returns true if the address is the first one behind reserved addresses. A program that gets this
// address could take the two reservations for one.
bool follows_reservation(uintptr_t address) {
    const Allocation *before = find_reserved(address - 1, 1);
    return before && before->reservation;
}

// Reserves addresses that begin at a multiple of `alignment`, near `hint` if that is possible.
// Returns null if no free range is large enough.
char *reserve_addresses(size_t bytes, size_t alignment, uintptr_t hint) {
    size_t all;
    if (__builtin_add_overflow(bytes, alignment, &all))
        return nullptr;
    void *found = mmap(reinterpret_cast<void *>(hint), hint ? bytes : all, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED)
        return nullptr;
    auto first = reinterpret_cast<uintptr_t>(found);
    if (hint && first % alignment == 0)
        return static_cast<char *>(found);
    if (hint) {
        munmap(found, bytes);
        return reserve_addresses(bytes, alignment, 0);
    }
    uintptr_t begin = round_up(first, alignment);
    if (begin > first)
        munmap(found, begin - first);
    size_t behind = first + all - (begin + bytes);
    if (behind)
        munmap(reinterpret_cast<void *>(begin + bytes), behind);
    return reinterpret_cast<char *>(begin);
}

} // namespace

SOFT_API(cuMemGetAllocationGranularity,
         (size_t *granularity, const CUmemAllocationProp *wanted,
          CUmemAllocationGranularity_flags option),
         (granularity, wanted, option)) {
    Device *device = nullptr;
    if (!granularity || option < CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
        option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = check_properties(wanted, device))
        return status;
    *granularity = virtual_granularity;
    return CUDA_SUCCESS;
}

SOFT_API(cuMemAddressReserve,
         (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr hint,
          unsigned long long flags),
         (address, bytes, alignment, hint, flags)) {
    auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (!address || flags || !bytes || !is_multiple(bytes) || hint % page ||
        alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = sticky_error())
        return status;
    if (CUresult status = state().settings.faults.strike_allocation(0))
        return status;
    if (hint && follows_reservation(hint))
        hint = 0;
    char *begin = reserve_addresses(bytes, std::max(alignment, virtual_granularity), hint);
    char *hidden = begin ? map_pages(bytes, PROT_READ | PROT_WRITE) : nullptr;
    if (!hidden) {
        if (begin)
            munmap(begin, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    keep_private(hidden, bytes);
    Device &device = call.context ? *call.context->device : *state().devices.front();
    add_reservation(device, reinterpret_cast<uintptr_t>(begin), hidden, bytes);
    *address = reinterpret_cast<CUdeviceptr>(begin);
    return CUDA_SUCCESS;
}

SOFT_API(cuMemAddressFree, (CUdeviceptr address, size_t bytes), (address, bytes)) {
    Allocation *reserved = find_reserved(address, 1);
    if (!reserved || !reserved->reservation || reserved->begin != address ||
        reserved->bytes != bytes || !reserved->reservation->empty())
        return CUDA_ERROR_INVALID_VALUE;
    remove_reservation(*reserved);
    return CUDA_SUCCESS;
}

SOFT_API(cuMemCreate,
         (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *wanted,
          unsigned long long flags),
         (handle, bytes, wanted, flags)) {
    Device *device = nullptr;
    if (!handle || flags || !bytes || !is_multiple(bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = check_properties(wanted, device))
        return status;
    if (device->sticky)
        return device->sticky;
    if (CUresult status = state().settings.faults.strike_allocation(bytes))
        return status;
    if (!has_capacity(*device, bytes) && finish_frees(call.lock, *device) && device->sticky)
        return device->sticky;
    if (!has_capacity(*device, bytes) || exceeds_machine(bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    auto backing = std::make_shared<Backing>(*device, bytes, *wanted, true);
    // The memory is never compressed, and the properties of the handle say so.
    backing->properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;
    if (!backing->fill())
        return CUDA_ERROR_OUT_OF_MEMORY;
    make_room(*device);
    *handle = backing->handle = state().backings.insert(backing, state().reuse());
    return CUDA_SUCCESS;
}

SOFT_API(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle)) {
    BackingPtr backing = find_backing(handle);
    if (!backing)
        return CUDA_ERROR_INVALID_VALUE;
    if (!--backing->references && !backing->mappings)
        state().backings.erase(handle);
    return CUDA_SUCCESS;
}

SOFT_API(cuMemMap,
         (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
          unsigned long long flags),
         (address, bytes, offset, handle, flags)) {
    BackingPtr backing = find_backing(handle);
    if (!backing || !bytes || flags || !is_multiple(address))
        return CUDA_ERROR_INVALID_VALUE;
    if (offset || bytes != backing->bytes) // so far, no driver maps a part of the memory
        return not_supported("a part of the memory: offset " + std::to_string(offset) + ", " +
                             std::to_string(bytes) + " of " + std::to_string(backing->bytes) +
                             " bytes");
    Allocation *reserved = find_reserved_range(address, bytes);
    if (!reserved)
        return CUDA_ERROR_INVALID_VALUE;
    if (!reserved->reservation->is_free({address, bytes}))
        return CUDA_ERROR_INVALID_VALUE;
    if (backing->device->sticky)
        return backing->device->sticky;
    if (!reserved->reservation->map(address, bytes, backing))
        return CUDA_ERROR_OUT_OF_MEMORY;
    reserved->device = backing->device;
    return CUDA_SUCCESS;
}

// Whether cuMemUnmap waits for work, as cuMemFree does, is not documented.
SOFT_API(cuMemUnmap, (CUdeviceptr address, size_t bytes), (address, bytes)) {
    Allocation *reserved = find_uncut_range(address, bytes);
    if (!reserved)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = sticky_error())
        return status;
    state().races.freed_by_host(*reserved, {address, bytes});
    if (device_free_waits()) {
        if (CUresult lost = finish_devices(call.lock))
            return lost;
        reserved = find_uncut_range(address, bytes); // another thread may have freed it
        if (!reserved)
            return CUDA_ERROR_INVALID_VALUE;
    }
    reserved->reservation->unmap({address, bytes});
    return CUDA_SUCCESS;
}

SOFT_API(cuMemSetAccess,
         (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *wanted, size_t count),
         (address, bytes, wanted, count)) {
    Allocation *reserved = find_mapped_range(address, bytes);
    if (!reserved || !wanted || !count)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = sticky_error())
        return status;
    for (size_t i = 0; i < count; i++) {
        const Device *device = nullptr;
        int flags = static_cast<int>(wanted[i].flags);
        int kind = static_cast<int>(wanted[i].location.type);
        if (kind == location_host || kind == location_numa)
            return not_supported("access of the host (location.type " + std::to_string(kind) + ")");
        if (CUresult status = device_of(wanted[i].location, CUDA_ERROR_INVALID_VALUE, device))
            return status;
        if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++)
        reserved->reservation->set_access({address, bytes}, wanted[i].location.id,
                                          static_cast<int>(wanted[i].flags));
    return CUDA_SUCCESS;
}

SOFT_API(cuMemGetAccess,
         (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address),
         (flags, location, address)) {
    const Mapping *mapping = find_mapping(address);
    const Device *device = nullptr;
    if (!flags || !location || !mapping)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = device_of(*location, CUDA_ERROR_INVALID_DEVICE, device))
        return status;
    auto access = mapping->access.find(device->ordinal);
    *flags = access == mapping->access.end() ? 0 : static_cast<unsigned>(access->second);
    return CUDA_SUCCESS;
}

SOFT_API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *address),
         (handle, address)) {
    const Mapping *mapping = find_mapping(reinterpret_cast<CUdeviceptr>(address));
    if (!handle || !mapping)
        return CUDA_ERROR_INVALID_VALUE;
    mapping->backing->references++;
    *handle = mapping->backing->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuMemGetAllocationPropertiesFromHandle,
         (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle),
         (properties, handle)) {
    BackingPtr backing = find_backing(handle);
    if (!properties || !backing)
        return CUDA_ERROR_INVALID_VALUE;
    *properties = backing->properties;
    return CUDA_SUCCESS;
}

} // namespace soft
