#pragma once

#include "memory/allocation.h"

namespace soft {

enum class Side { Pageable, Locked, Managed, Device };

// One end of a copy: where its bytes are, and what kind of memory that is.
struct End {
    uintptr_t address = 0;
    char *host = nullptr;
    Side side = Side::Pageable;
    PoolPtr pool;             // the pool of stream-ordered memory; else null
    bool sync_memops = false; // synchronous operations on it always wait

    bool on_host() const { return side == Side::Pageable || side == Side::Locked; }
};

// Finds memory that the driver knows: all bytes must lie in one allocation.
CUresult locate_device(CUdeviceptr address, size_t bytes, End &end);
// The same, but an unknown address is pageable memory of the program.
CUresult locate_any(uintptr_t address, size_t bytes, End &end);
// The same, but device memory is an error.
CUresult locate_host(const void *pointer, size_t bytes, End &end);

// Copies need no peer access, but pools must admit the device that copies.
CUresult check_pools(const Context &context, const End &target, const End &source);
// Checks the context argument of a peer copy. Its value has no other effect, because all devices
// share one address space.
CUresult check_named(CUcontext context);

} // namespace soft
