#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"

// Attributes of pools, access to pools, and the pools of a location.

namespace soft {
namespace {

CUresult set_flag(bool &flag, const void *value) {
    flag = *static_cast<const int *>(value) != 0;
    return CUDA_SUCCESS;
}

// Sets a high-water mark. The only value that a program may set is 0, which resets the mark to the
// current value.
CUresult reset_high(size_t &high, size_t current, const void *value) {
    if (*static_cast<const cuuint64_t *>(value))
        return CUDA_ERROR_INVALID_VALUE;
    high = current;
    return CUDA_SUCCESS;
}

// Returns the device of a location, or null.
Device *named_device(const CUmemLocation &location) {
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? find_device(location.id) : nullptr;
}

} // namespace

SOFT_API(cuMemPoolSetAttribute, (CUmemoryPool handle, CUmemPool_attribute attribute, void *value),
         (handle, attribute, value)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    PoolPtr pool = find_pool(handle);
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return set_flag(pool->follow_events, value);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return set_flag(pool->opportunistic, value);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return set_flag(pool->internal_dependencies, value);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold = *static_cast<const cuuint64_t *>(value);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return reset_high(pool->reserved_high, pool->reserved, value);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return reset_high(pool->used_high, pool->used, value);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SOFT_API(cuMemPoolGetAttribute, (CUmemoryPool handle, CUmemPool_attribute attribute, void *value),
         (handle, attribute, value)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    PoolPtr pool = find_pool(handle);
    if (!pool || !value || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return put<int>(value, pool->follow_events);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return put<int>(value, pool->opportunistic);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return put<int>(value, pool->internal_dependencies);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return put<cuuint64_t>(value, pool->release_threshold);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return put<cuuint64_t>(value, pool->reserved);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return put<cuuint64_t>(value, pool->reserved_high);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return put<cuuint64_t>(value, pool->used);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return put<cuuint64_t>(value, pool->used_high);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

namespace {

// Returns the processor that stands for a location in Pool::visitors.
int visitor_of(const CUmemLocation &location) {
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : int(the_host);
}

// Returns true for locations that pools know: devices, the host, and any of its nodes.
bool can_visit(const CUmemLocation &location) {
    int kind = static_cast<int>(location.type);
    return kind == location_host || kind == location_numa || named_device(location);
}

// Returns whether the pool is in the memory of this location. Such a location always has access.
bool is_home(const Pool &pool, const CUmemLocation &location) {
    if (pool.kind == MemoryKind::Host)
        return location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    return pool.device && pool.device == named_device(location);
}

// Returns an error if one change of access is invalid.
CUresult check_access(const Pool &pool, const CUmemAccessDesc &access) {
    constexpr int read_only = 1;
    int flags = static_cast<int>(access.flags);
    bool device = access.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (flags == read_only || (!device && pool.kind == MemoryKind::Async))
        return not_supported(flags == read_only ? "access for reading only"
                                                : "access of the host to a pool of device memory");
    if (!can_visit(access.location))
        return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    bool none = flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (none && is_home(pool, access.location))
        return device ? CUDA_ERROR_INVALID_DEVICE
                      : not_supported("no access of the host to a pool of its own memory");
    return none || flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_VALUE;
}

} // namespace

// Checks all changes before it applies any, so that an error changes nothing.
SOFT_API(cuMemPoolSetAccess, (CUmemoryPool handle, const CUmemAccessDesc *map, size_t count),
         (handle, map, count)) {
    PoolPtr pool = find_pool(handle);
    if (!pool || !map)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (CUresult status = check_access(*pool, map[i]))
            return status;
    for (size_t i = 0; i < count; i++) {
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            pool->visitors.erase(visitor_of(map[i].location));
        else
            pool->visitors.insert(visitor_of(map[i].location));
    }
    return CUDA_SUCCESS;
}

// The access that a program sets for a managed pool has no effect on uses: its memory can be used
// everywhere.
SOFT_API(cuMemPoolGetAccess,
         (CUmemAccess_flags * flags, CUmemoryPool handle, CUmemLocation *location),
         (flags, handle, location)) {
    PoolPtr pool = find_pool(handle);
    if (!flags || !pool || !location || !can_visit(*location))
        return CUDA_ERROR_INVALID_VALUE;
    bool access = is_home(*pool, *location) || pool->visitors.count(visitor_of(*location)) > 0;
    *flags = access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

// Returns a pool of a location. `pool_of` is default_pool or current_pool.
static CUresult read_pool(CUmemoryPool *handle, const CUmemLocation *location,
                          CUmemAllocationType type, const PoolPtr &(*pool_of)(const PoolPlace &)) {
    if (!handle || !location)
        return CUDA_ERROR_INVALID_VALUE;
    PoolPlace place;
    if (CUresult status = find_pool_place(static_cast<int>(type), *location, place))
        return status;
    *handle = pool_of(place)->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuMemGetDefaultMemPool,
         (CUmemoryPool * handle, CUmemLocation *location, CUmemAllocationType type),
         (handle, location, type)) {
    return read_pool(handle, location, type, default_pool);
}

SOFT_API(cuMemGetMemPool,
         (CUmemoryPool * handle, CUmemLocation *location, CUmemAllocationType type),
         (handle, location, type)) {
    return read_pool(handle, location, type, current_pool);
}

SOFT_API(cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool handle),
         (location, type, handle)) {
    if (!location)
        return CUDA_ERROR_INVALID_VALUE;
    PoolPlace place;
    if (CUresult status = find_pool_place(static_cast<int>(type), *location, place))
        return status;
    PoolPtr pool = find_pool(handle);
    if (!pool || pool->kind != place.kind || pool->location.type != place.location.type ||
        pool->location.id != place.location.id)
        return CUDA_ERROR_INVALID_VALUE;
    pools_at(place).current = pool;
    return CUDA_SUCCESS;
}

} // namespace soft
