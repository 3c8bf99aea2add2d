#include "api/call.h"
#include "api/state.h"
#include "device/device_attributes.h"
#include "device/visible.h"

#include <cstdio>

// The function that describes a device to libnvidia-ml.so.1 (nvml.c). It does not require cuInit.

namespace soft {
namespace {

// Adds how much of the device this process uses. Before cuInit it uses nothing.
void add_use(cudadrvSoftDevice &told, int place) {
    for (const auto &device : state().devices)
        if (device->place == place) {
            told.used = device->used + device->resident;
            told.busy = !device_targets(*device).empty();
        }
}

} // namespace
} // namespace soft

extern "C" int cudadrvSoftDescribeDevice(int place, cudadrvSoftDevice *told) {
    // A forked child does not take the lock, which a thread of the parent may have held at the
    // fork. The child uses nothing of the device.
    soft::Lock lock(soft::state().mutex, std::defer_lock);
    if (!soft::in_forked_child())
        lock.lock();
    const soft::Settings &settings = soft::state().settings;
    if (place < 0 || place >= settings.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    *told = {};
    std::snprintf(told->name, sizeof told->name, "%s", soft::device_name);
    std::snprintf(told->uuid, sizeof told->uuid, "%s", soft::uuid_text(place).c_str());
    told->memory = settings.memory;
    told->bus = soft::pci_bus(place);
    told->major = soft::device_capability() / 10;
    told->minor = soft::device_capability() % 10;
    if (lock)
        soft::add_use(*told, place);
    return CUDA_SUCCESS;
}
