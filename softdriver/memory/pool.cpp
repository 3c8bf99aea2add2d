#include "memory/pool.h"
#include "api/call.h"

#include "api/state.h"
#include "base/unsupported.h"

#include <algorithm>
#include <cstring>

namespace soft {
namespace {

// Pools reserve multiples of this size, if the device has room.
constexpr size_t chunk = size_t(32) << 20;
constexpr size_t address_space = size_t(1) << 47;
constexpr int file_handle = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr int shareable = file_handle | 8; // the handle types of Linux: file descriptor and fabric

// CUmemPoolProps as in the newest toolkit. In older toolkits the last fields are reserved.
struct Properties {
    int allocation_type;
    int handle_types;
    CUmemLocation location;
    void *security;
    size_t max_bytes;
    unsigned short usage;
    unsigned char reserved[54];
};
static_assert(sizeof(Properties) == sizeof(CUmemPoolProps), "the same structure");

PoolPlace place_of(Device &device) {
    return {MemoryKind::Async, make_location(location_device, device.ordinal), &device};
}

PoolPlace place_of(const Pool &pool) { return {pool.kind, pool.location, pool.device}; }

} // namespace

PoolPtr create_pool(const PoolPlace &place) {
    auto pool = std::make_shared<Pool>();
    pool->kind = place.kind;
    pool->location = place.location;
    pool->device = place.device;
    static uint64_t pools = 0;
    pool->number = ++pools;
    pool->handle = reinterpret_cast<CUmemoryPool>(state().pools.insert(pool, state().reuse()));
    return pool;
}

bool Pool::has_room(size_t bytes) const {
    if (!device)
        return !exceeds_machine(bytes);
    return device->used - reserved + bytes <= state().settings.memory;
}

void Pool::reserve(size_t bytes) {
    if (device) {
        device->used = device->used - reserved + bytes;
        make_room(*device);
    }
    reserved = bytes;
    reserved_high = std::max(reserved_high, reserved);
}

bool Pool::grow(size_t bytes) {
    if (bytes <= reserved)
        return true;
    for (size_t unit : {chunk, size_t(1)}) {
        size_t target = round_up(bytes, unit);
        if (max_bytes && target > max_bytes)
            continue;
        if (has_room(target)) {
            reserve(target);
            return true;
        }
    }
    return false;
}

CUresult Pool::take(size_t bytes, const Stream &stream, Operation &allocation) {
    if (imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (device ? bytes > state().settings.memory : exceeds_machine(bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t size = capacity_of(bytes);
    size_t wanted = live_ + leaving_ + size;
    bool fits = grow(wanted);
    if (!fits && device) {
        trim_pools(*device);
        fits = grow(wanted);
    }
    if (!fits) {
        std::vector<OperationPtr> behind;
        for (const Leaving &free : frees_) {
            OperationPtr operation = free.operation.lock();
            bool own = operation && operation->stream.get() == &stream;
            if (!operation || operation->done() || (!own && !internal_dependencies))
                continue;
            wanted -= free.bytes;
            behind.push_back(std::move(operation));
        }
        if (!grow(wanted))
            return CUDA_ERROR_OUT_OF_MEMORY;
        allocation.waits = std::move(behind);
    }
    live_ += size;
    used += bytes;
    used_high = std::max(used_high, used);
    return CUDA_SUCCESS;
}

void Pool::leave(size_t bytes) {
    if (imported)
        return;
    used -= bytes;
    live_ -= capacity_of(bytes);
    leaving_ += capacity_of(bytes);
}

void Pool::leave_behind(const OperationPtr &operation, size_t bytes) {
    frees_.push_back({operation, capacity_of(bytes)});
}

void Pool::left(size_t bytes) {
    if (imported)
        return;
    leaving_ -= capacity_of(bytes);
    auto gone = [](const Leaving &free) {
        OperationPtr operation = free.operation.lock();
        return !operation || operation->done();
    };
    frees_.erase(std::remove_if(frees_.begin(), frees_.end(), gone), frees_.end());
    if (destroyed)
        trim(0);
}

void Pool::trim(size_t keep) {
    size_t busy = live_ + leaving_;
    size_t least = std::max(destroyed ? busy : round_up(busy, chunk), keep);
    if (least < reserved)
        reserve(least);
}

std::vector<OperationPtr> Pool::pending() const {
    std::vector<OperationPtr> operations;
    for (const Leaving &free : frees_)
        if (OperationPtr operation = free.operation.lock())
            operations.push_back(std::move(operation));
    return operations;
}

PoolPtr find_pool(CUmemoryPool handle) {
    return state().pools.find(reinterpret_cast<uintptr_t>(handle));
}

CUresult find_pool_place(int type, const CUmemLocation &location, PoolPlace &place) {
    int kind = static_cast<int>(location.type);
    if (kind < location_none || kind > location_numa)
        return not_supported("pools at a location of type " + std::to_string(kind));
    bool managed = type == allocation_managed;
    if (!managed && (type != CU_MEM_ALLOCATION_TYPE_PINNED || kind == location_none))
        return CUDA_ERROR_INVALID_VALUE;
    if ((kind == location_device && !find_device(location.id)) ||
        (kind == location_numa && location.id != 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (managed && !state().settings.concurrent_managed)
        return not_supported("pools of managed memory: the device lacks "
                             "CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS");
    // Only the location of a device has an ordinal that the pool must store.
    int id = kind == location_device ? location.id : 0;
    place = {managed ? MemoryKind::Managed : MemoryKind::Host,
             kind == location_none ? no_location : make_location(kind, id), nullptr};
    if (!managed && kind == location_device)
        place = place_of(*find_device(id));
    return CUDA_SUCCESS;
}

PoolSlot &pools_at(const PoolPlace &place) {
    if (place.device)
        return place.device->pools;
    return state().pool_slots[{place.kind, place.location.type, place.location.id}];
}

const PoolPtr &default_pool(const PoolPlace &place) {
    PoolSlot &pools = pools_at(place);
    if (!pools.standard) {
        pools.standard = create_pool(place);
        pools.standard->standard = true;
    }
    return pools.standard;
}

const PoolPtr &current_pool(const PoolPlace &place) {
    PoolSlot &pools = pools_at(place);
    return pools.current ? pools.current : default_pool(place);
}

const PoolPtr &default_pool(Device &device) { return default_pool(place_of(device)); }

const PoolPtr &current_pool(Device &device) {
    return device.pools.current ? device.pools.current : default_pool(device);
}

void release_unused(const Device &device) {
    for (const auto &entry : state().pools)
        if (!entry.second->device || entry.second->device == &device)
            entry.second->trim(entry.second->release_threshold);
}

void trim_pools(const Device &device) {
    for (const auto &entry : state().pools)
        if (entry.second->device == &device)
            entry.second->trim(0);
}

void destroy_pools() {
    State &driver = state();
    std::vector<Allocation *> rest;
    for (auto &entry : driver.allocations)
        if (entry.second.pool)
            rest.push_back(&entry.second);
    for (Allocation *allocation : rest)
        free_allocation(*allocation);
    std::vector<PoolPtr> pools;
    for (const auto &entry : driver.pools)
        pools.push_back(entry.second);
    for (const auto &pool : pools) {
        pool->trim(0);
        driver.pools.erase(reinterpret_cast<uintptr_t>(pool->handle));
    }
    driver.pool_slots.clear();
    for (const auto &device : driver.devices)
        device->pools = {};
}

SOFT_API(cuMemPoolCreate, (CUmemoryPool * handle, const CUmemPoolProps *given), (handle, given)) {
    if (!handle || !given)
        return CUDA_ERROR_INVALID_VALUE;
    Properties properties;
    std::memcpy(&properties, given, sizeof(properties));
    bool managed = properties.allocation_type == allocation_managed;
    if (managed && static_cast<int>(properties.location.type) == location_numa_current)
        properties.location = make_location(location_numa, 0);
    PoolPlace place;
    if (CUresult status = find_pool_place(properties.allocation_type, properties.location, place))
        return managed ? status : CUDA_ERROR_INVALID_VALUE;
    if (managed && (properties.max_bytes || properties.usage))
        return CUDA_ERROR_INVALID_VALUE;
    // Memory of the host as a whole, and managed memory, cannot be shared with other processes.
    bool shared = !managed && static_cast<int>(place.location.type) != location_host;
    if (properties.handle_types & ~(shared ? shareable : 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (properties.handle_types & ~file_handle)
        return not_supported("handleTypes " + std::to_string(properties.handle_types) +
                             ": only file descriptors (1) are");
    if (properties.max_bytes > address_space)
        return CUDA_ERROR_OUT_OF_MEMORY;
    PoolPtr pool = create_pool(place);
    pool->handle_types = properties.handle_types;
    if (pool->handle_types && pool->kind == MemoryKind::Host)
        pool->file = std::make_shared<HostFile>();
    pool->max_bytes = round_up(properties.max_bytes, chunk);
    *handle = pool->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuMemPoolDestroy, (CUmemoryPool handle), (handle)) {
    PoolPtr pool = find_pool(handle);
    if (!pool || pool->standard)
        return CUDA_ERROR_INVALID_VALUE;
    PoolSlot &pools = pools_at(place_of(*pool));
    if (pools.current == pool)
        pools.current = nullptr;
    pool->destroyed = true;
    pool->trim(0);
    state().pools.erase(reinterpret_cast<uintptr_t>(handle));
    return CUDA_SUCCESS;
}

SOFT_API(cuMemPoolTrimTo, (CUmemoryPool handle, size_t keep), (handle, keep)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    PoolPtr pool = find_pool(handle);
    if (!pool || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    pool->trim(keep);
    return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * handle, CUdevice ordinal), (handle, ordinal)) {
    Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = default_pool(*device)->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetMemPool, (CUmemoryPool * handle, CUdevice ordinal), (handle, ordinal)) {
    Device *device = find_device(ordinal);
    if (!handle || !device)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = current_pool(*device)->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuDeviceSetMemPool, (CUdevice ordinal, CUmemoryPool handle), (ordinal, handle)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    Device *device = find_device(ordinal);
    PoolPtr pool = find_pool(handle);
    if (!device || !pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (static_cast<int>(pool->location.type) != location_device ||
        pool->location.id != device->ordinal || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    // A pool of managed memory that prefers the device is also accepted, but as on a real driver,
    // cuMemAllocAsync does not allocate from it.
    pools_at(place_of(*pool)).current = pool;
    return CUDA_SUCCESS;
}

} // namespace soft
