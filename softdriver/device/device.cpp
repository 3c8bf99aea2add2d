#include "device/device.h"
#include "api/call.h"

#include "api/state.h"
#include "device/visible.h"

#include <cstdio>

namespace soft {

Device *find_device(CUdevice ordinal) {
    auto &devices = state().devices;
    bool known = ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size();
    return known ? devices[ordinal].get() : nullptr;
}

// Finds a device, and stores one of its properties in `value`.
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
    return read_device(ordinal, uuid,
                       [](auto &device, auto &value) { value = uuid_of(device.place); });
}

SOFT_API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice ordinal), (uuid, ordinal)) {
    return cuDeviceGetUuid_v2_body(call, uuid, ordinal);
}

SOFT_API(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice ordinal), (bytes, ordinal)) {
    return read_device(ordinal, bytes,
                       [](auto &, auto &value) { value = state().settings.memory; });
}

} // namespace soft
