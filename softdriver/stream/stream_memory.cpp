#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"
#include "graph/works.h"

// Stream-ordered memory: allocated and freed in the order of a stream.

namespace soft {
namespace {

// Allocates memory of the pool's kind. The capacity that it takes is already counted.
CUresult place(const Context &context, const Pool &pool, size_t bytes, Allocation *&allocation) {
    switch (pool.kind) {
    case MemoryKind::Host:
        return pool.file ? allocate_in_file(context, *pool.file, bytes, allocation)
                         : allocate_host(context, bytes, 0, allocation);
    case MemoryKind::Managed:
        if (CUresult status = allocate_managed(context, bytes, CU_MEM_ATTACH_GLOBAL, allocation))
            return status;
        allocation->managed->pages.change(
            0, whole_pages(bytes),
            [&](size_t, size_t, PageState &state) { state.preferred = pool.location; });
        return CUDA_SUCCESS;
    default:
        return place_device(context, *pool.device, bytes, MemoryKind::Async, allocation);
    }
}

// Adds a node to the capture that allocates memory of the graph.
CUresult capture_allocation(Stream &stream, const Pool &pool, CUdeviceptr *address, size_t bytes) {
    int kind = static_cast<int>(pool.location.type);
    if (kind != location_device)
        return kind == location_none
                   ? CUDA_ERROR_INVALID_VALUE
                   : not_supported("a captured allocation from a pool that is not on a device");
    if (!stream.capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    Allocation *allocation = nullptr;
    CUresult status = pool.device
                          ? allocate_device(*stream.owner, bytes, MemoryKind::Async, allocation)
                          : place(*stream.owner, pool, bytes, allocation);
    if (status)
        return status;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = pool.location;
    params.bytesize = bytes;
    params.dptr = *address = allocation->begin;
    GraphMemoryPtr memory = give_to_graph(*allocation);
    return capture_node(stream, make_alloc_work(params, std::move(memory), stream.context));
}

// Pending frees have given back their capacity, but not their addresses. If no other addresses are
// left, waits for these frees.
CUresult wait_for_addresses(Call &call, const Stream &stream, const Pool &pool, size_t bytes) {
    if (pool.kind != MemoryKind::Async || !pool.device->arena.reserved() ||
        pool.device->arena.has_addresses(bytes) || !finish_frees(call.lock, *pool.device))
        return CUDA_SUCCESS;
    return context_status(stream.owner);
}

// Takes the memory from the pool.
CUresult reserve(Call &call, const Stream &stream, const PoolPtr &pool, size_t bytes,
                 Operation &operation, Allocation *&allocation) {
    if (CUresult status = pool->take(bytes, stream, operation))
        return status;
    CUresult status = wait_for_addresses(call, stream, *pool, bytes);
    if (status == CUDA_SUCCESS)
        status = place(*stream.owner, *pool, bytes, allocation);
    if (status == CUDA_SUCCESS) {
        allocation->pool = pool;
    } else {
        pool->leave(bytes);
        pool->left(bytes);
    }
    return status;
}

CUresult allocate(Call &call, Stream &stream, const PoolPtr &pool, CUdeviceptr *address,
                  size_t bytes) {
    if (CUresult status = stream.capture ? CUDA_SUCCESS : refuse_unsafe(*call.thread))
        return status;
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    *address = 0;
    if (!bytes)
        return CUDA_SUCCESS;
    if (stream.capture)
        return capture_allocation(stream, *pool, address, bytes);
    Allocation *allocation = nullptr;
    auto operation = std::make_shared<Operation>();
    // Real drivers may run the allocation at once, before earlier work of the legacy stream.
    operation->legacy_rules = false;
    if (CUresult status = reserve(call, stream, pool, bytes, *operation, allocation))
        return status;
    operation->writes.push_back({allocation->begin, bytes});
    if (CUresult status = submit(stream, std::move(operation))) {
        free_allocation(*allocation);
        return status;
    }
    *address = allocation->begin;
    return CUDA_SUCCESS;
}

} // namespace

SOFT_STREAM_API(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream handle),
                (address, bytes, handle)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    return allocate(call, *stream, current_pool(*stream->owner->device), address, bytes);
}

SOFT_STREAM_API(cuMemAllocFromPoolAsync,
                (CUdeviceptr * address, size_t bytes, CUmemoryPool pool_handle, CUstream handle),
                (address, bytes, pool_handle, handle)) {
    StreamPtr stream;
    PoolPtr pool = find_pool(pool_handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    return allocate(call, *stream, pool, address, bytes);
}

// The address is invalid for every later call, but the memory is released only when the stream runs
// the operation.
SOFT_STREAM_API(cuMemFreeAsync, (CUdeviceptr address, CUstream handle), (address, handle)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (CUresult status = stream->capture ? CUDA_SUCCESS : refuse_unsafe(*call.thread))
        return status;
    if (!address)
        return CUDA_SUCCESS;
    Allocation *allocation = find_start(address);
    bool ordered = allocation && (allocation->pool || allocation->captured);
    if (!allocation || allocation->reservation || (allocation->page_locked() && !ordered))
        return CUDA_ERROR_INVALID_VALUE;
    if (allocation->kind == MemoryKind::Managed && !ordered)
        return not_supported("the memory is of cuMemAllocManaged: only cuMemFree frees it");
    // A captured free can only free memory of graphs. Memory that was allocated in a capture can
    // only be freed by a captured free.
    bool of_graph = allocation->captured || !allocation->graph.expired();
    if (stream->capture ? !of_graph : allocation->captured)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) {
        NodeWorkPtr work;
        if (CUresult status = make_free_work(*stream->capture->graph, address, work))
            return status;
        return capture_node(*stream, std::move(work));
    }
    if (stream->kind == StreamKind::Legacy)
        if (CUresult status = refuse_implicit(*stream->owner))
            return status;
    auto operation = std::make_shared<Operation>();
    if (!allocation->graph.expired()) { // the address still belongs to the graph
        operation->writes.push_back({allocation->begin, allocation->bytes});
        set_there(*allocation, false);
        return submit(*stream, std::move(operation));
    }
    Remains remains = remove_allocation(*allocation, true);
    if (remains.pool)
        remains.pool->leave_behind(operation, remains.bytes);
    operation->writes.push_back({remains.begin, remains.bytes});
    operation->kept.emplace_back(nullptr, [=](void *) { release_memory(remains); });
    return submit(*stream, std::move(operation));
}

} // namespace soft
