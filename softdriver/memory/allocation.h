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
    char *host = nullptr; // where its bytes really are
    Device *device = nullptr;
    Context *owner = nullptr; // alive; null once memory of a pool has outlived it
    CUcontext context = nullptr;
    unsigned flags = 0;
    uint64_t id = 0;
    PoolPtr pool;                       // that stream-ordered memory comes from
    std::shared_ptr<Managed> managed;   // of managed memory
    bool captured = false;              // belongs to a graph
    bool of_module = false;             // a variable: no program frees it
    bool read_only = false;             // for kernels
    Function maker = Function::Count;   // that allocated it
    bool sync_memops = false;           // synchronous operations on it always wait
    std::shared_ptr<RaceShadow> shadow; // who accesses it, for the race detector

    bool on_device() const { return kind == MemoryKind::Device || kind == MemoryKind::Async; }
    // The host addressed it without the driver knowing: a copy to or from it is a host copy.
    bool page_locked() const { return kind == MemoryKind::Host || kind == MemoryKind::Registered; }
};

// The live allocation that an address lies in, or null.
Allocation *find_allocation(uintptr_t address);
// The one that begins there, or null.
Allocation *find_start(uintptr_t address);
// The same as the first, if all of the range lies in it.
Allocation *find_range(uintptr_t begin, size_t bytes);
// Whether kernels of the context may access it: another device's memory needs permission.
bool reaches(const Context &context, const Allocation &allocation);
// True for addresses that can be no host memory of the program's own.
bool never_host_memory(uintptr_t address);
inline char *host_address(const Allocation &allocation, uintptr_t address) {
    return allocation.host + (address - allocation.begin);
}

// What an allocation takes of a device's capacity.
size_t capacity_of(size_t bytes);
CUresult allocate_device(const Context &context, size_t bytes, MemoryKind kind,
                         Allocation *&result);
// The same in capacity that has been taken already.
CUresult place_device(const Context &context, Device &device, size_t bytes, MemoryKind kind,
                      Allocation *&result);
CUresult allocate_host(const Context &context, size_t bytes, unsigned flags, Allocation *&result);
CUresult allocate_managed(const Context &context, size_t bytes, unsigned flags,
                          Allocation *&result);
// It is a variable of a module from now on, and not counted with what programs allocate.
void give_to_module(Allocation &allocation);
void register_host(const Context &context, void *address, size_t bytes, unsigned flags);
// Forgets the allocation and gives its memory back.
void free_allocation(Allocation &allocation);
// Frees all that belongs to a context.
void free_context_memory(const Context &context);
// Forgets all page-locked and managed memory, and leaves it mapped for ever: programs may still
// have views of it.
void abandon_host_memory();
// Forgets the allocation; its memory stays until the Remains are given back.
struct Remains {
    MemoryKind kind;
    Device *device;
    uintptr_t begin;
    char *host;
    size_t bytes;
    PoolPtr pool;
};
// `in_stream`: work that comes before the free may still use it.
Remains forget_allocation(Allocation &allocation, bool in_stream = false);
void give_back(const Remains &remains);

} // namespace soft
