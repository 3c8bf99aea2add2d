#pragma once

#include "memory/allocation.h"

namespace soft {

enum class Side { Pageable, Locked, Managed, Device };

// One end of a copy: the address of its bytes and the kind of memory that they are in.
struct End {
    uintptr_t address = 0;
    char *host = nullptr;
    Side side = Side::Pageable;
    PoolPtr pool;             // the pool, if the memory is stream-ordered; else null
    bool sync_memops = false; // synchronous operations on the memory always wait

    bool on_host() const { return side == Side::Pageable || side == Side::Locked; }
};

// Finds memory that the driver knows. Returns an error unless all bytes lie in one allocation.
CUresult locate_device(CUdeviceptr address, size_t bytes, End &end);
// Like locate_device(), but an unknown address counts as pageable memory of the program.
CUresult locate_any(uintptr_t address, size_t bytes, End &end);
// Like locate_any(), but returns an error for device memory.
CUresult locate_host(const void *pointer, size_t bytes, End &end);

// Returns an error if an end is in a pool to which the context's device has no access. Other memory
// can be copied without peer access.
CUresult check_pools(const Context &context, const End &target, const End &source);
// Returns an error if the context argument of a peer copy is not valid. The argument has no other
// effect, because all devices share one address space.
CUresult check_named(CUcontext context);

} // namespace soft
