#pragma once

#include "memory/allocation.h"

namespace soft {

enum class Side { Pageable, Locked, Managed, Device };

// One end of a copy: where its bytes are, and what kind of memory that is.
struct End {
    uintptr_t address = 0;
    char *host = nullptr;
    Side side = Side::Pageable;
    PoolPtr pool;             // of stream-ordered memory
    bool sync_memops = false; // synchronous operations on it always wait

    bool on_host() const { return side == Side::Pageable || side == Side::Locked; }
};

// All of the bytes must lie in one allocation that the driver knows.
CUresult locate_device(CUdeviceptr address, size_t bytes, End &end);
// An address that the driver does not know is the program's own, pageable memory.
CUresult locate_any(uintptr_t address, size_t bytes, End &end);
// Memory that the host can touch.
CUresult locate_host(const void *pointer, size_t bytes, End &end);

// Copies reach all memory of all devices, but for pools that do not admit the device that copies.
CUresult check_pools(const Context &context, const End &target, const End &source);
// For calls that name a context with an address: with one address space for all devices nothing
// depends on which it is.
CUresult check_named(CUcontext context);

} // namespace soft
