#include "api/call.h"
#include "api/state.h"

#include <cstdio>

// This file implements the PCI addresses of the devices. Each device has its own bus number. Its
// domain, device and function numbers are 0.

namespace soft {

SOFT_API(cuDeviceGetPCIBusId, (char *text, int size, CUdevice ordinal), (text, size, ordinal)) {
    if (!text || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    const Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    // If the text does not fit, it is truncated and an error is returned.
    int length = std::snprintf(text, size, "0000:%02X:00.0", pci_bus(*device));
    return length < size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Finds a device by its PCI address. The text may be domain:bus:device.function, domain:bus:device
// or bus:device.function, in hexadecimal.
SOFT_API(cuDeviceGetByPCIBusId, (CUdevice * result, const char *text), (result, text)) {
    if (!result || !text)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned domain = 0, bus = 0, place = 0, function = 0;
    int read = std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &place, &function);
    if (read < 3) {
        domain = function = 0;
        if (std::sscanf(text, "%x:%x.%x", &bus, &place, &function) != 3)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (const auto &device : state().devices)
        if (pci_bus(*device) == static_cast<int>(bus) && !domain && !place && !function) {
            *result = device->ordinal;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

} // namespace soft
