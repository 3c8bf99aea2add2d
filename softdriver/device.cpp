#include "device.h"

#include "state.h"

#include <cstdio>
#include <cstring>

namespace soft {

namespace {

constexpr const char *device_name = "cudadrv software device (not a GPU)";
constexpr uintptr_t first_pool = 0x5c4000001000;

struct AttributeValue {
    CUdevice_attribute attribute;
    int value;
};

// What devices answer, except for what the settings decide. Everything not listed is 0.
constexpr AttributeValue attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4194304},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 102400},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 101376},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
};

// The stream memory operations' attribute has changed its name between toolkits, not its number.
constexpr int stream_memory_operations = 92;

int read_attribute(const Device &device, CUdevice_attribute attribute) {
    if (attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)
        return state().settings.concurrent_managed;
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
        return device.ordinal + 1;
    if (static_cast<int>(attribute) == stream_memory_operations)
        return 1;
    for (const AttributeValue &known : attributes)
        if (known.attribute == attribute)
            return known.value;
    return 0;
}

} // namespace

Device *find_device(CUdevice ordinal) {
    auto &devices = state().devices;
    bool known = ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size();
    return known ? devices[ordinal].get() : nullptr;
}

// All functions here name a device and write one result.
template <class Value, class Read>
static CUresult read_device(CUdevice ordinal, Value *value, Read read) {
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    const Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    read(*device, *value);
    return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetCount, (int *count), (count)) {
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(state().devices.size());
    return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGet, (CUdevice * result, int ordinal), (result, ordinal)) {
    return read_device(ordinal, result, [](auto &device, auto &value) { value = device.ordinal; });
}

SOFT_API(cuDeviceGetName, (char *name, int size, CUdevice ordinal), (name, size, ordinal)) {
    if (!name || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!find_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, size, "%s", device_name);
    return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice ordinal), (uuid, ordinal)) {
    return read_device(ordinal, uuid, [](auto &device, auto &value) {
        std::memcpy(value.bytes, "cudadrv-software", sizeof(value.bytes));
        value.bytes[7] = static_cast<char>(device.ordinal);
    });
}

SOFT_API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice ordinal), (uuid, ordinal)) {
    return cuDeviceGetUuid_v2_body(call, uuid, ordinal);
}

SOFT_API(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice ordinal), (bytes, ordinal)) {
    return read_device(ordinal, bytes,
                       [](auto &, auto &value) { value = state().settings.memory; });
}

SOFT_API(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice ordinal),
         (value, attribute, ordinal)) {
    if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return read_device(ordinal, value, [=](auto &device, int &result) {
        result = read_attribute(device, attribute);
    });
}

SOFT_API(cuDeviceComputeCapability, (int *major, int *minor, CUdevice ordinal),
         (major, minor, ordinal)) {
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    const Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    *major = read_attribute(*device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = read_attribute(*device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return CUDA_SUCCESS;
}

// A pool is a name only: all stream-ordered memory of a device comes from its one pool.
SOFT_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice ordinal), (pool, ordinal)) {
    return read_device(ordinal, pool, [](auto &device, auto &value) {
        value = reinterpret_cast<CUmemoryPool>(first_pool + 16 * device.ordinal);
    });
}

SOFT_API(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice ordinal), (pool, ordinal)) {
    return cuDeviceGetDefaultMemPool_body(call, pool, ordinal);
}

} // namespace soft
