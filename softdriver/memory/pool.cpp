#include "memory/pool.h"
#include "api/call.h"

#include "api/state.h"

#include <algorithm>
#include <cstring>

namespace soft {
namespace {

// Pools reserve multiples of this size, if the device has room.
constexpr size_t chunk = size_t(32) << 20;
constexpr size_t address_space = size_t(1) << 47;
constexpr int shareable = 1 | 8; // the handle types of Linux: file descriptor and fabric

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

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

PoolPtr create_pool(Device &device) {
    auto pool = std::make_shared<Pool>();
    pool->device = &device;
    pool->handle = reinterpret_cast<CUmemoryPool>(state().pools.insert(pool, state().reuse()));
    return pool;
}

} // namespace

void Pool::reserve(size_t bytes) {
    device->used = device->used - reserved + bytes;
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
        if (device->used - reserved + target <= state().settings.memory) {
            reserve(target);
            return true;
        }
    }
    return false;
}

CUresult Pool::take(size_t bytes, const Stream &stream, Operation &allocation) {
    if (bytes > state().settings.memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t size = capacity_of(bytes);
    size_t wanted = live_ + leaving_ + size;
    bool fits = grow(wanted);
    if (!fits) {
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
    used -= bytes;
    live_ -= capacity_of(bytes);
    leaving_ += capacity_of(bytes);
}

void Pool::leave_behind(const OperationPtr &operation, size_t bytes) {
    frees_.push_back({operation, capacity_of(bytes)});
}

void Pool::left(size_t bytes) {
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

const PoolPtr &default_pool(Device &device) {
    if (!device.default_pool)
        device.default_pool = create_pool(device);
    return device.default_pool;
}

const PoolPtr &current_pool(Device &device) {
    return device.pool ? device.pool : default_pool(device);
}

void release_unused(const Device &device) {
    for (const auto &entry : state().pools)
        if (entry.second->device == &device)
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
        pool->device->pool = pool->device->default_pool = nullptr;
        driver.pools.erase(reinterpret_cast<uintptr_t>(pool->handle));
    }
}

SOFT_API(cuMemPoolCreate, (CUmemoryPool * handle, const CUmemPoolProps *given), (handle, given)) {
    if (!handle || !given)
        return CUDA_ERROR_INVALID_VALUE;
    Properties properties;
    std::memcpy(&properties, given, sizeof(properties));
    if (properties.allocation_type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return properties.allocation_type == allocation_managed ? CUDA_ERROR_NOT_SUPPORTED
                                                                : CUDA_ERROR_INVALID_VALUE;
    if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return is_host(properties.location) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    Device *device = find_device(properties.location.id);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties.handle_types & ~shareable)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties.handle_types) // pools cannot be shared with other processes
        return CUDA_ERROR_NOT_SUPPORTED;
    if (properties.max_bytes > address_space)
        return CUDA_ERROR_OUT_OF_MEMORY;
    PoolPtr pool = create_pool(*device);
    pool->max_bytes = round_up(properties.max_bytes, chunk);
    *handle = pool->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuMemPoolDestroy, (CUmemoryPool handle), (handle)) {
    PoolPtr pool = find_pool(handle);
    if (!pool || pool == pool->device->default_pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->device->pool == pool)
        pool->device->pool = nullptr;
    pool->destroyed = true;
    pool->trim(0);
    state().pools.erase(reinterpret_cast<uintptr_t>(handle));
    return CUDA_SUCCESS;
}

SOFT_API(cuMemPoolTrimTo, (CUmemoryPool handle, size_t keep), (handle, keep)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    PoolPtr pool = find_pool(handle);
    if (!pool)
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
    if (!device || !pool || pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    device->pool = pool;
    return CUDA_SUCCESS;
}

} // namespace soft
