#include "api/call.h"
#include "api/state.h"

// Queries about addresses: pointer attributes and address ranges.

namespace soft {
namespace {

// Values of CUpointer_attribute that older headers lack.
enum { mapping_size = 18, mapping_base = 19, memory_block_id = 20, is_decompress_capable = 21 };

// Returns how devices may access the memory, as a value of CU_POINTER_ATTRIBUTE_ACCESS_FLAGS.
int access_flags(const Allocation &allocation) {
    bool read_only = allocation.kind == MemoryKind::Registered &&
                     (allocation.flags & CU_MEMHOSTREGISTER_READ_ONLY);
    return read_only ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                     : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
}

// Stores the address by which kernels of the context access the memory at `address`. If they cannot
// access this memory, stores 0 and returns an error.
CUresult device_pointer(const Context *context, const Allocation &allocation, uintptr_t address,
                        void *data) {
    put<CUdeviceptr>(data, 0);
    if (CUresult status = context_status(context))
        return status;
    return reaches(*context, allocation, address, 1, false) ? put<CUdeviceptr>(data, address)
                                                            : CUDA_ERROR_INVALID_VALUE;
}

// Returns the range of the memory that contains an address: the mapping at a reserved address, else
// the allocation.
Range mapped_range(const Allocation &allocation, uintptr_t address) {
    Range range{allocation.begin, allocation.bytes};
    if (allocation.reservation)
        range.bytes = allocation.reservation->find(address, &range.begin)->bytes;
    return range;
}

// Reads an attribute that depends on the memory that is mapped to reserved addresses. Returns false
// for all other attributes.
bool read_mapping(const Mapping &mapping, CUpointer_attribute attribute, void *data) {
    switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        put<unsigned long long>(data, mapping.backing->properties.requestedHandleTypes);
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put<int>(data, mapping.backing->device->ordinal);
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case memory_block_id:
        put<unsigned long long>(data, mapping.backing->id);
        return true;
    default:
        return false;
    }
}

CUresult read_attribute(const Context *context, const Allocation &allocation,
                        CUpointer_attribute attribute, uintptr_t address, void *data) {
    if (allocation.reservation &&
        read_mapping(*allocation.reservation->find(address), attribute, data))
        return CUDA_SUCCESS;
    switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        // Memory of a pool has no context.
        return put(data, allocation.pool ? nullptr : allocation.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put<unsigned>(data,
                             allocation.page_locked() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return device_pointer(context, allocation, address, data);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        put(data, allocation.on_device() ? 0 : address);
        return allocation.on_device() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return put<int>(data, allocation.sync_memops);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return put<int>(data, allocation.kind == MemoryKind::Device && !allocation.of_module &&
                                  !allocation.reservation);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case is_decompress_capable:
        return put<int>(data, 0);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return put<unsigned long long>(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return put<int>(data, access_flags(allocation));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return put(data, allocation.pool ? allocation.pool->handle : nullptr);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case memory_block_id:
        return put<unsigned long long>(data, allocation.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return put<int>(data, allocation.kind == MemoryKind::Managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return put<int>(data, allocation.device->ordinal);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return put<CUdeviceptr>(data, allocation.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return put<size_t>(data, allocation.bytes);
    case mapping_base:
        return put<CUdeviceptr>(data, mapped_range(allocation, address).begin);
    case mapping_size:
        return put<size_t>(data, mapped_range(allocation, address).bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return put<int>(data, 1);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

// Returns the size of an attribute's value, or 0 if the attribute is unknown.
size_t attribute_size(CUpointer_attribute attribute) {
    switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case mapping_size:
    case mapping_base:
    case memory_block_id:
        return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case is_decompress_capable:
        return 4;
    default:
        return 0;
    }
}

// Stores the value that an attribute has where it does not apply. An address that the driver does
// not know counts as host memory of the program. The attributes of its range stay unwritten,
// because the range is unknown.
void put_default(CUpointer_attribute attribute, bool known, uintptr_t address, void *data) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        put(data, known ? 0 : address);
        return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put<int>(data, CU_DEVICE_INVALID);
        return;
    default:
        std::fill_n(static_cast<char *>(data), attribute_size(attribute), 0);
    }
}

} // namespace

SOFT_API(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr address),
         (data, attribute, address)) {
    const Allocation *allocation = find_visible(address);
    if (!data || !allocation)
        return CUDA_ERROR_INVALID_VALUE;
    return read_attribute(call.context.get(), *allocation, attribute, address, data);
}

// Unlike cuPointerGetAttribute, cuPointerGetAttributes accepts every address, and stores a default
// value for an attribute that does not apply.
SOFT_API(cuPointerGetAttributes,
         (unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address),
         (count, attributes, data, address)) {
    if (!count || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    const Allocation *allocation = find_visible(address);
    const Context *context = call.context.get();
    for (unsigned i = 0; i < count; i++) {
        if (!data[i] || !attribute_size(attributes[i]))
            return CUDA_ERROR_INVALID_VALUE;
        if (!allocation || read_attribute(context, *allocation, attributes[i], address, data[i]))
            put_default(attributes[i], allocation, address, data[i]);
    }
    return CUDA_SUCCESS;
}

SOFT_API(cuPointerSetAttribute,
         (const void *value, CUpointer_attribute attribute, CUdeviceptr address),
         (value, attribute, address)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    Allocation *allocation = find_visible(address);
    if (!value || !allocation || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    allocation->sync_memops = *static_cast<const unsigned *>(value) != 0;
    return CUDA_SUCCESS;
}

SOFT_API(cuMemGetAddressRange_v2, (CUdeviceptr * begin, size_t *bytes, CUdeviceptr address),
         (begin, bytes, address)) {
    if (!begin && !bytes)
        return CUDA_SUCCESS;
    if (CUresult status = context_status(call.context.get()))
        return status;
    const Allocation *allocation = find_visible(address);
    if (!allocation || !reaches(*call.context, *allocation, address, 1, false))
        return CUDA_ERROR_NOT_FOUND;
    Range mapped = mapped_range(*allocation, address);
    if (begin)
        *begin = mapped.begin;
    if (bytes)
        *bytes = mapped.bytes;
    return CUDA_SUCCESS;
}

} // namespace soft
