#pragma once

#include "device/context.h"
#include "memory/graph_memory.h"
#include "memory/managed.h"
#include "memory/pool.h"
#include "memory/virtual.h"

namespace soft {

class RaceShadow;
struct Sharing;

struct Allocation {
    uintptr_t begin = 0;
    size_t bytes = 0;
    MemoryKind kind = MemoryKind::Device;
    char *host = nullptr; // the address at which the driver accesses the bytes
    Device *device = nullptr;
    // The context, or null for pool memory whose context was destroyed.
    Context *owner = nullptr;
    CUcontext context = nullptr;
    unsigned flags = 0;
    uint64_t id = 0;
    uint64_t number = 0;              // counts allocations only
    PoolPtr pool;                     // the pool that the memory is from, or null
    std::shared_ptr<Managed> managed; // the state of managed memory; null for other memory
    // The mappings of reserved addresses. Null for other memory.
    std::shared_ptr<Reservation> reservation;
    std::weak_ptr<GraphMemory> graph; // for memory that a node of a living graph allocates
    bool of_graph = false;            // a node of a graph has allocated it; that graph may be gone
    std::shared_ptr<Sharing> sharing; // how it is shared with other processes, or null
    // A node of a graph will allocate the memory. Until then only other nodes can use it.
    bool captured = false;
    bool of_module = false;           // it is a variable of a module, which programs cannot free
    bool of_others = false;           // other processes may write it
    bool read_only = false;           // kernels cannot write it
    Function maker = Function::Count; // the driver function that allocated it
    // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: synchronous operations always wait.
    bool sync_memops = false;
    std::shared_ptr<RaceShadow> shadow; // the race detector's record of accesses, or null

    bool on_device() const {
        return kind == MemoryKind::Device || kind == MemoryKind::Async || kind == MemoryKind::Array;
    }
    // Returns true for page-locked host memory, which the driver has allocated or the program has
    // registered.
    bool page_locked() const { return kind == MemoryKind::Host || kind == MemoryKind::Registered; }
};

// Returns the live allocation that contains the address, or null. Reserved addresses without memory
// and the memory of arrays are in no allocation.
Allocation *find_allocation(uintptr_t address);
// Like find_allocation(), but does not find memory that a graph will allocate.
Allocation *find_visible(uintptr_t address);
// Returns the live allocation that begins at the address, or null.
Allocation *find_start(uintptr_t address);
// Returns the live allocation that contains the whole range, or null.
Allocation *find_range(uintptr_t begin, size_t bytes);
// Like find_range(), but also finds reserved addresses without memory, and the memory of arrays.
Allocation *find_reserved(uintptr_t begin, size_t bytes);
// Returns true if the context may read these bytes of the allocation; with `writes`, if it may
// write them. Memory of a pool requires access to the pool. Reserved addresses require access by
// cuMemSetAccess. Other memory of another device requires peer access.
bool reaches(const Context &context, const Allocation &allocation, uintptr_t begin, size_t bytes,
             bool writes);
// Returns true for addresses at which the program's own host memory cannot be.
bool never_host_memory(uintptr_t address);
inline char *host_address(const Allocation &allocation, uintptr_t address) {
    return allocation.host + (address - allocation.begin);
}

// Returns true if an allocation of this size exceeds the memory of the machine.
bool exceeds_machine(size_t bytes);
// Returns how many bytes of a device's capacity an allocation of this size uses.
size_t capacity_of(size_t bytes);
CUresult allocate_device(const Context &context, size_t bytes, MemoryKind kind,
                         Allocation *&result);
// Returns true if the device has capacity for an allocation of this size. Trims the device's pools
// if necessary.
bool has_capacity(Device &device, size_t bytes);
// Allocates device memory for which the caller has already counted the capacity.
CUresult place_device(const Context &context, Device &device, size_t bytes, MemoryKind kind,
                      Allocation *&result);
// Waits until all pending frees of the device's streams are done. Returns false if there were none.
bool finish_frees(Lock &lock, const Device &device);
// Returns whether a call that frees or unmaps memory of a device waits for work. Real drivers wait
// but do not promise to, so the setting `free_waits` or the random schedule decides.
bool device_free_waits();
// Maps memory of another process, which is in a file of that process's device.
CUresult place_imported(const Context &context, Device &device, MemoryKind kind, int file,
                        uint64_t offset, size_t bytes, Allocation *&result);
CUresult allocate_host(const Context &context, size_t bytes, unsigned flags, Allocation *&result);
// Allocates page-locked memory that other processes can map.
CUresult allocate_in_file(const Context &context, HostFile &file, size_t bytes,
                          Allocation *&result);
// Adds to the table host memory that another process has allocated and that is mapped at `address`.
void place_imported_host(const Context &context, char *address, size_t bytes, Allocation *&result);
CUresult allocate_managed(const Context &context, size_t bytes, unsigned flags,
                          Allocation *&result);
// Adds to the table addresses that a program reserves. The driver accesses their memory at `host`.
void add_reservation(Device &device, uintptr_t begin, char *host, size_t bytes);
// Removes reserved addresses, which have no memory any more, from the table.
void remove_reservation(Allocation &reserved);
// Makes the allocation a variable of a module, which programs cannot free and which is not counted
// as live.
void give_to_module(Allocation &allocation);
void register_host(const Context &context, void *address, size_t bytes, unsigned flags);
// Removes the allocation from the table and releases its memory.
void free_allocation(Allocation &allocation);
// Removes all page-locked and managed memory from the table, but leaves it mapped forever, because
// programs may still have views of it.
void abandon_host_memory();
// The memory of an allocation that has been removed from the table, until release_memory() releases
// it.
struct Remains {
    MemoryKind kind;
    Device *device;
    uintptr_t begin;
    char *host;
    size_t bytes;
    PoolPtr pool;
    std::shared_ptr<Managed> managed;
    std::shared_ptr<Sharing> sharing;
};
// Removes an allocation from the table. `in_stream` says that a stream frees the memory, so earlier
// work of the stream may still use it.
Remains remove_allocation(Allocation &allocation, bool in_stream = false);
void release_memory(const Remains &remains);

} // namespace soft
