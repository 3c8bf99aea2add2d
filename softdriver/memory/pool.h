#pragma once

#include "device/device.h"
#include "work/operation.h"

#include <set>

namespace soft {

// A pool of device memory for stream-ordered allocation. Reserved bytes count against the device's
// capacity; used bytes are exactly what the program has allocated. Reserved but not used are:
// memory whose free no stream has run yet, memory kept for later, and rounding.
struct Pool {
    CUmemoryPool handle = nullptr;
    Device *device = nullptr;
    // The handle is invalid; the pool lives until its last allocation is freed.
    bool destroyed = false;
    size_t max_bytes = 0; // limit of reserved bytes; 0: no limit
    bool follow_events = true, opportunistic = true, internal_dependencies = true;
    size_t release_threshold = 0;
    size_t reserved = 0, reserved_high = 0;
    size_t used = 0, used_high = 0;
    std::set<int> visitors; // ordinals of other devices with access

    // Takes capacity for an allocation in this stream. If there is no free capacity, it uses that
    // of pending frees, and the allocation waits for these frees.
    CUresult take(size_t bytes, const Stream &stream, Operation &allocation);
    // The three steps of a free. leave(): the program has freed the bytes. leave_behind(): the
    // operation will release them. left(): they are released.
    void leave(size_t bytes);
    void leave_behind(const OperationPtr &operation, size_t bytes);
    void left(size_t bytes);
    // Trims the reservation to the bytes in use, but not below `keep` bytes.
    void trim(size_t keep);
    // The operations of pending frees.
    std::vector<OperationPtr> pending() const;
    bool admits(const Device &other) const {
        return &other == device || visitors.count(other.ordinal) > 0;
    }

  private:
    struct Leaving {
        std::weak_ptr<Operation> operation;
        size_t bytes;
    };

    bool grow(size_t bytes);
    void reserve(size_t bytes);

    size_t live_ = 0, leaving_ = 0; // rounded bytes in use, and of pending frees
    std::vector<Leaving> frees_;
};

using PoolPtr = std::shared_ptr<Pool>;

// Finds a pool by its handle; null if there is none.
PoolPtr find_pool(CUmemoryPool handle);
const PoolPtr &default_pool(Device &device);
const PoolPtr &current_pool(Device &device);
// Called when the host has synchronized with the device: trims pools to their release thresholds.
void release_unused(const Device &device);
// Trims all pools of a device completely.
void trim_pools(const Device &device);
// Destroys all pools, and frees memory of pools that is still allocated. No work may use it.
void destroy_pools();

} // namespace soft
