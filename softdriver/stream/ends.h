#pragma once

#include "memory/array.h"

namespace soft {

struct Call;
struct Stream;

enum class Side { Pageable, Locked, Managed, Device };

// One end of a copy: where its bytes are, and in which kind of memory.
struct End {
    uintptr_t address = 0;
    char *host = nullptr;
    Side side = Side::Pageable;
    PoolPtr pool; // the pool of stream-ordered memory; null for other memory
    // The devices that may read, and write, memory at reserved addresses: a bit for each ordinal.
    uint32_t readers = ~0u, writers = ~0u;
    // Synchronous operations on the memory always wait until they are done.
    bool sync_memops = false;
    bool of_graph = false; // memory that a graph will allocate
    bool unified = false;  // the program did not say on which side the memory is
    ArrayPtr array;        // the array in which the bytes are, or null

    bool on_host() const { return side == Side::Pageable || side == Side::Locked; }
};

// Locates bytes in memory that the driver has allocated or registered. Returns an error unless all
// bytes lie in one allocation.
CUresult locate_device(CUdeviceptr address, size_t bytes, End &end);
// Like locate_device(), but an address that the driver does not know counts as pageable memory.
CUresult locate_any(uintptr_t address, size_t bytes, End &end);
// Like locate_any(), but returns an error for device memory.
CUresult locate_host(const void *pointer, size_t bytes, End &end);

// Locates bytes in an array: the first is at `x`, in bytes, in a row of a slice.
CUresult locate_array(CUarray handle, size_t x, size_t row, size_t slice, End &end);

// Returns an error if an end is in a pool, or at reserved addresses, to which the context's device
// has no access. Copies of other memory need no peer access.
CUresult check_access(const Context &context, const End &target, const End &source);
// Returns the context whose device needs this access when a copy is put into the stream. As on an
// H200, it is the current context, or the stream's if none is current.
const Context &accessing(const Call &call, const Stream &stream);
// Checks a context argument of a peer copy. The argument has no effect except that an invalid
// context is an error, because all devices share one address space.
CUresult check_named(CUcontext context);

} // namespace soft
