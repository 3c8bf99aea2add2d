#include "state.h"

// What a program can ask about an address.

namespace soft {
namespace {

template <class Value> CUresult put(void *data, Value value) {
    *static_cast<Value *>(data) = value;
    return CUDA_SUCCESS;
}

// Attributes that older headers lack.
enum { mapping_size = 18, mapping_base = 19, memory_block_id = 20, is_decompress_capable = 21 };

// What the current context's device may do with it.
int access_flags(const Allocation &allocation) {
    bool read_only = allocation.kind == MemoryKind::Registered &&
                     (allocation.flags & CU_MEMHOSTREGISTER_READ_ONLY);
    return read_only ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                     : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
}

CUresult read_attribute(const Allocation &allocation, CUpointer_attribute attribute,
                        uintptr_t address, void *data) {
    switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return put(data, allocation.pool ? nullptr : allocation.context); // pools have none
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put<unsigned>(data,
                             allocation.page_locked() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return put<CUdeviceptr>(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (allocation.on_device())
            return CUDA_ERROR_INVALID_VALUE;
        return put(data, reinterpret_cast<void *>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return put<int>(data, allocation.sync_memops);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
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
    case mapping_base:
        return put<CUdeviceptr>(data, allocation.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case mapping_size:
        return put<size_t>(data, allocation.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return put<int>(data, 1);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

// The size of an attribute's value, for the null answers of cuPointerGetAttributes.
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
    default:
        return 4;
    }
}

} // namespace

SOFT_API(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr address),
         (data, attribute, address)) {
    const Allocation *allocation = find_allocation(address);
    if (!data || !allocation)
        return CUDA_ERROR_INVALID_VALUE;
    return read_attribute(*allocation, attribute, address, data);
}

// Unlike the above it knows no bad pointers: what does not apply is answered with null.
SOFT_API(cuPointerGetAttributes,
         (unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address),
         (count, attributes, data, address)) {
    if (!count || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    const Allocation *allocation = find_allocation(address);
    for (unsigned i = 0; i < count; i++) {
        if (allocation &&
            read_attribute(*allocation, attributes[i], address, data[i]) == CUDA_SUCCESS)
            continue;
        char *bytes = static_cast<char *>(data[i]);
        std::fill_n(bytes, attribute_size(attributes[i]), 0);
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            put<int>(data[i], CU_DEVICE_INVALID);
    }
    return CUDA_SUCCESS;
}

SOFT_API(cuPointerSetAttribute,
         (const void *value, CUpointer_attribute attribute, CUdeviceptr address),
         (value, attribute, address)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    Allocation *allocation = find_allocation(address);
    if (!value || !allocation || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    allocation->sync_memops = *static_cast<const unsigned *>(value) != 0;
    return CUDA_SUCCESS;
}

SOFT_API(cuMemGetAddressRange_v2, (CUdeviceptr * begin, size_t *bytes, CUdeviceptr address),
         (begin, bytes, address)) {
    const Allocation *allocation = find_allocation(address);
    if (!allocation)
        return CUDA_ERROR_NOT_FOUND;
    if (begin)
        *begin = allocation->begin;
    if (bytes)
        *bytes = allocation->bytes;
    return CUDA_SUCCESS;
}

} // namespace soft
