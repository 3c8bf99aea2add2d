#pragma once

#include "base/process.h"
#include "device/device.h"
#include "memory/host_file.h"
#include "memory/location.h"
#include "work/operation.h"

#include <set>

namespace soft {

// The memory of an array is on a device, but has no address for programs.
enum class MemoryKind { Device, Async, Host, Managed, Registered, Array };
constexpr int memory_kinds = 6;

// A pool for stream-ordered allocation. Used bytes are exactly what the program has allocated.
// Reserved bytes also include rounding, memory that is kept for later, and memory whose free no
// stream has run yet. Reserved bytes of device memory count against the device's capacity.
struct Pool {
    CUmemoryPool handle = nullptr;
    MemoryKind kind = MemoryKind::Async; // of the memory: Async (on a device), Host or Managed
    CUmemLocation location = no_location;
    Device *device = nullptr; // the device of device memory; else null
    bool standard = false;    // it is the default pool of its location, which the driver creates
    // The program has destroyed the pool: its handle is invalid, but the pool lives until its last
    // allocation is freed.
    bool destroyed = false;
    int handle_types = 0; // the types of handles with which the pool can be exported
    // The file with the memory of a host pool for which handles can be made; else null.
    std::shared_ptr<HostFile> file;
    // The pool is imported from another process. Nothing can be allocated from it.
    bool imported = false;
    ProcessId owner;      // the process that owns an imported pool
    uint64_t number = 0;  // number of an imported pool in that process
    size_t max_bytes = 0; // limit of reserved bytes; 0 means no limit
    bool follow_events = true, opportunistic = true, internal_dependencies = true;
    size_t release_threshold = 0;
    size_t reserved = 0, reserved_high = 0;
    size_t used = 0, used_high = 0;
    // Processors to which the program has given access. `device` always has access, and so has the
    // host to host memory. All processors have access to managed memory.
    std::set<int> visitors;

    // Takes capacity for an allocation in this stream. If there is none left, takes the capacity of
    // pending frees, and makes the allocation wait for these frees.
    CUresult take(size_t bytes, const Stream &stream, Operation &allocation);
    // The three steps of a free. Call leave() when the program has freed the bytes, leave_behind()
    // when the operation that will release them has been submitted, and left() when they are
    // released.
    void leave(size_t bytes);
    void leave_behind(const OperationPtr &operation, size_t bytes);
    void left(size_t bytes);
    // Returns reserved memory that is not in use to the device, but keeps at least `keep` bytes
    // reserved.
    void trim(size_t keep);
    // Returns the operations of pending frees.
    std::vector<OperationPtr> pending() const;
    bool admits(const Device &other) const {
        return kind == MemoryKind::Managed || &other == device || visitors.count(other.ordinal) > 0;
    }

  private:
    struct Leaving {
        std::weak_ptr<Operation> operation;
        size_t bytes;
    };

    bool has_room(size_t bytes) const;
    bool grow(size_t bytes);
    void reserve(size_t bytes);

    size_t live_ = 0, leaving_ = 0; // bytes in use and bytes of pending frees, both rounded up
    std::vector<Leaving> frees_;
};

using PoolPtr = std::shared_ptr<Pool>;

// Finds a pool by its handle. Returns null if there is none.
PoolPtr find_pool(CUmemoryPool handle);
// The kind of memory that a pool has, and its location.
struct PoolPlace {
    MemoryKind kind = MemoryKind::Async;
    CUmemLocation location = no_location;
    Device *device = nullptr; // of device memory
};

PoolPtr create_pool(const PoolPlace &place);
// Finds the place of a CUmemAllocationType and a location. Returns an error if no pool can be
// there.
CUresult find_pool_place(int type, const CUmemLocation &location, PoolPlace &place);
// Returns the pools of a place.
PoolSlot &pools_at(const PoolPlace &place);
const PoolPtr &default_pool(const PoolPlace &place);
const PoolPtr &current_pool(const PoolPlace &place);
const PoolPtr &default_pool(Device &device);
const PoolPtr &current_pool(Device &device);
// Called when the host has synchronized with the device. Trims the pools whose memory the device's
// streams free, to their release thresholds.
void release_unused(const Device &device);
// Trims all pools of a device's own memory to the memory that is in use.
void trim_pools(const Device &device);
// Destroys all pools, and frees the memory that is still allocated from them. No work may use this
// memory.
void destroy_pools();

} // namespace soft
