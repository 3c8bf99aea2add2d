#include "stream/ends.h"

#include "api/call.h"
#include "api/state.h"

namespace soft {
namespace {

Side side_of(const Allocation &allocation) {
    if (allocation.on_device())
        return Side::Device;
    return allocation.kind == MemoryKind::Managed ? Side::Managed : Side::Locked;
}

// Returns the devices that may read, or write, these bytes: a bit for each ordinal.
uint32_t users(const Reservation &reservation, uintptr_t address, size_t bytes, bool writes) {
    uint32_t found = 0;
    for (const auto &device : state().devices)
        if (reservation.admits(device->ordinal, address, bytes, writes))
            found |= 1u << device->ordinal;
    return found;
}

} // namespace

static CUresult locate_known(uintptr_t address, size_t bytes, End &end) {
    const Allocation *allocation = find_range(address, bytes);
    if (!allocation)
        return CUDA_ERROR_INVALID_VALUE;
    end.address = address;
    end.host = host_address(*allocation, address);
    end.side = side_of(*allocation);
    end.pool = allocation->pool;
    end.sync_memops = allocation->sync_memops;
    end.of_graph = allocation->captured;
    if (allocation->reservation) {
        end.readers = users(*allocation->reservation, address, bytes, false);
        end.writers = users(*allocation->reservation, address, bytes, true);
    }
    return CUDA_SUCCESS;
}

// Functions for device memory also accept host memory, except host memory of a pool.
CUresult locate_device(CUdeviceptr address, size_t bytes, End &end) {
    CUresult status = locate_known(address, bytes, end);
    return status == CUDA_SUCCESS && end.side == Side::Locked && end.pool ? CUDA_ERROR_INVALID_VALUE
                                                                          : status;
}

CUresult locate_any(uintptr_t address, size_t bytes, End &end) {
    if (find_allocation(address)) {
        CUresult status = locate_known(address, bytes, end);
        end.unified = true;
        return status;
    }
    if (never_host_memory(address))
        return CUDA_ERROR_INVALID_VALUE;
    end = {};
    end.address = address;
    end.host = reinterpret_cast<char *>(address);
    end.unified = true;
    return CUDA_SUCCESS;
}

CUresult locate_host(const void *pointer, size_t bytes, End &end) {
    CUresult status = locate_any(reinterpret_cast<uintptr_t>(pointer), bytes, end);
    end.unified = false;
    return status == CUDA_SUCCESS && end.side == Side::Device ? CUDA_ERROR_INVALID_VALUE : status;
}

CUresult locate_array(CUarray handle, size_t x, size_t row, size_t slice, End &end) {
    end.array = find_array(handle);
    if (!end.array)
        return CUDA_ERROR_INVALID_VALUE;
    const Array &array = *end.array;
    end.address = array.address + slice * array.slice_bytes() + row * array.row_bytes() + x;
    end.host = host_address(*find_array_memory(array.address, 1), end.address);
    end.side = Side::Device;
    return context_status(array.owner);
}

CUresult check_access(const Context &context, const End &target, const End &source) {
    unsigned device = static_cast<unsigned>(context.device->ordinal);
    if (!(source.readers >> device & target.writers >> device & 1))
        return CUDA_ERROR_INVALID_VALUE;
    for (const End *end : {&target, &source})
        if (end->side == Side::Device && end->pool && !end->pool->admits(*context.device))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

const Context &accessing(const Call &call, const Stream &stream) {
    return call.context ? *call.context : *stream.owner;
}

CUresult check_named(CUcontext handle) {
    return handle ? context_status(find_context(handle).get()) : CUDA_SUCCESS;
}

} // namespace soft
