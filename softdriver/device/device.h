#pragma once

#include "base/cuda_api.h"
#include "device/arena.h"

#include <memory>

namespace soft {

struct Context;
struct Pool;

struct Device {
    explicit Device(int number) : ordinal(number) {}

    // Resets the device; its address space stays reserved.
    void renew() {
        sticky = CUDA_SUCCESS;
        primary = nullptr;
        primary_retains = primary_flags = 0;
    }

    const int ordinal;
    int place = 0; // index in the machine; CUDA_VISIBLE_DEVICES can reorder ordinals
    Arena arena;
    size_t used = 0; // bytes of capacity taken by device memory
    // The error that lost the device; destroying contexts does not clear it.
    CUresult sticky = CUDA_SUCCESS;
    std::shared_ptr<Context> primary;   // once created it stays, alive or destroyed
    std::shared_ptr<Pool> default_pool; // null until first requested
    std::shared_ptr<Pool> pool;         // the current pool; null: the default pool
    unsigned primary_retains = 0;
    unsigned primary_flags = 0;
};

// The device with this ordinal, or null.
Device *find_device(CUdevice ordinal);
int pci_bus(const Device &device);

} // namespace soft
