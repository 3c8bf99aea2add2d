#pragma once

#include "base/cuda_api.h"
#include "device/arena.h"

#include <memory>

namespace soft {

constexpr const char *device_name = "cudadrv software device (not a GPU)";

struct Context;
struct Pool;

// The default pool of a place, which the driver creates when it is first needed, and the current
// pool. If `current` is null, the default pool is the current one.
struct PoolSlot {
    std::shared_ptr<Pool> standard, current;
};

struct Device {
    explicit Device(int number) : ordinal(number) {}

    // Makes the device like new, except that its address space stays reserved.
    void renew() {
        sticky = CUDA_SUCCESS;
        primary = nullptr;
        primary_retains = primary_flags = 0;
        graph_memory = graph_memory_high = 0;
    }

    const int ordinal;
    int place = 0; // index among all devices, before CUDA_VISIBLE_DEVICES selects and orders them
    Arena arena;
    size_t used = 0;     // bytes of the device's capacity that device memory takes
    size_t resident = 0; // bytes of managed memory that are on the device
    // The bytes that the device holds for memory nodes of graphs, and the most that it has held.
    uint64_t graph_memory = 0, graph_memory_high = 0;
    // The sticky error that made the device unusable, or CUDA_SUCCESS. Destroying contexts does not
    // clear it.
    CUresult sticky = CUDA_SUCCESS;
    // The pointer stays set when the context is destroyed, because the next retain makes the
    // context usable again.
    std::shared_ptr<Context> primary;
    PoolSlot pools; // pools of this device's own memory
    unsigned primary_retains = 0;
    unsigned primary_flags = 0;
};

// Returns the device with this ordinal, or null.
Device *find_device(CUdevice ordinal);
inline int pci_bus(int place) { return place + 1; }
inline int pci_bus(const Device &device) { return pci_bus(device.place); }

} // namespace soft
