#pragma once

#include "base/cuda_api.h"
#include "device/arena.h"

#include <memory>

namespace soft {

struct Context;
struct Pool;

struct Device {
    explicit Device(int number) : ordinal(number) {}

    // As new, but for the address space, which stays reserved.
    void renew() {
        sticky = CUDA_SUCCESS;
        primary = nullptr;
        primary_retains = primary_flags = 0;
    }

    const int ordinal;
    int place = 0; // which of the machine's devices it is; programs may see them in another order
    Arena arena;
    size_t used = 0;                    // bytes of capacity taken by device memory
    CUresult sticky = CUDA_SUCCESS;     // a fault that no reset cures
    std::shared_ptr<Context> primary;   // once made it stays, alive or destroyed
    std::shared_ptr<Pool> default_pool; // once asked for
    std::shared_ptr<Pool> pool;         // the current one; null: the default one
    unsigned primary_retains = 0;
    unsigned primary_flags = 0;
};

// The device with this ordinal, or null.
Device *find_device(CUdevice ordinal);
int pci_bus(const Device &device);

} // namespace soft
