#pragma once

#include "device/context.h"
#include "memory/managed.h"
#include "memory/pool.h"

namespace soft {

class RaceShadow;

enum class MemoryKind { Device, Async, Host, Managed, Registered };

struct Allocation {
    uintptr_t begin = 0;
    size_t bytes = 0;
    MemoryKind kind = MemoryKind::Device;
    char *host = nullptr; // where the driver accesses its bytes
    Device *device = nullptr;
    // Never a destroyed one: pool memory that outlives its context has null.
    Context *owner = nullptr;
    CUcontext context = nullptr;
    unsigned flags = 0;
    uint64_t id = 0;
    PoolPtr pool;                       // the pool of stream-ordered memory; else null
    std::shared_ptr<Managed> managed;   // state of managed memory; else null
    bool captured = false;              // allocated by a captured node: belongs to the graph
    bool of_module = false;             // a variable of a module: programs cannot free it
    bool read_only = false;             // kernels cannot write it
    Function maker = Function::Count;   // the driver function that allocated it
    bool sync_memops = false;           // synchronous operations on it always wait
    std::shared_ptr<RaceShadow> shadow; // the race detector's record of accesses; may be null

    bool on_device() const { return kind == MemoryKind::Device || kind == MemoryKind::Async; }
    // True for page-locked host memory: allocated by the driver, or registered.
    bool page_locked() const { return kind == MemoryKind::Host || kind == MemoryKind::Registered; }
};

// The live allocation that contains the address, or null.
Allocation *find_allocation(uintptr_t address);
// The live allocation that begins at the address, or null.
Allocation *find_start(uintptr_t address);
// The live allocation that contains the whole range, or null.
Allocation *find_range(uintptr_t begin, size_t bytes);
// True if the context may access the allocation: another device's memory needs peer access, or
// admission to its pool.
bool reaches(const Context &context, const Allocation &allocation);
// True for addresses that cannot be the program's own host memory.
bool never_host_memory(uintptr_t address);
inline char *host_address(const Allocation &allocation, uintptr_t address) {
    return allocation.host + (address - allocation.begin);
}

// The bytes of a device's capacity that an allocation uses.
size_t capacity_of(size_t bytes);
CUresult allocate_device(const Context &context, size_t bytes, MemoryKind kind,
                         Allocation *&result);
// The same, but the capacity has been taken already.
CUresult place_device(const Context &context, Device &device, size_t bytes, MemoryKind kind,
                      Allocation *&result);
CUresult allocate_host(const Context &context, size_t bytes, unsigned flags, Allocation *&result);
CUresult allocate_managed(const Context &context, size_t bytes, unsigned flags,
                          Allocation *&result);
// Makes the allocation a variable of a module: it no longer counts as memory of the program.
void give_to_module(Allocation &allocation);
void register_host(const Context &context, void *address, size_t bytes, unsigned flags);
// Removes the allocation from the table and releases its memory.
void free_allocation(Allocation &allocation);
// Frees all memory that belongs to a context.
void free_context_memory(const Context &context);
// Removes all page-locked and managed memory from the table, but leaves it mapped forever: programs
// may still have views of it.
void abandon_host_memory();
// The memory of an allocation that is no longer in the table. release_memory() releases it.
struct Remains {
    MemoryKind kind;
    Device *device;
    uintptr_t begin;
    char *host;
    size_t bytes;
    PoolPtr pool;
};
// Removes an allocation from the table. `in_stream`: a stream frees it, so work before the free may
// still use it.
Remains remove_allocation(Allocation &allocation, bool in_stream = false);
void release_memory(const Remains &remains);

} // namespace soft
