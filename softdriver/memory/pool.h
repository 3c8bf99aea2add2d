#pragma once

#include "device/device.h"
#include "work/operation.h"

#include <set>

namespace soft {

// Memory that a device sets aside for stream-ordered allocation. What is reserved counts against
// the device's capacity; what is used is the program's, to the byte. Between them lies what was
// freed in a stream that has not got there yet, what is kept for later, and what rounding takes.
struct Pool {
    CUmemoryPool handle = nullptr;
    Device *device = nullptr;
    bool destroyed = false; // goes with its last allocation
    size_t max_bytes = 0;   // that it may reserve; 0: as much as there is
    bool follow_events = true, opportunistic = true, internal_dependencies = true;
    size_t release_threshold = 0;
    size_t reserved = 0, reserved_high = 0;
    size_t used = 0, used_high = 0;
    std::set<int> visitors; // ordinals of other devices that may access it

    // Bytes for an allocation in this stream. What is still being freed serves if there is nothing
    // else: the allocation then waits for it.
    CUresult take(size_t bytes, const Stream &stream, Operation &allocation);
    // The program has freed bytes; they are gone when the operation, if there is one, is done.
    void leave(size_t bytes);
    void leave_behind(const OperationPtr &operation, size_t bytes);
    void left(size_t bytes);
    // Gives back what is reserved for nothing, but for so many bytes.
    void trim(size_t keep);
    // The frees that have not been done.
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

    size_t live_ = 0, leaving_ = 0; // capacity of what is used, and of what is being freed
    std::vector<Leaving> frees_;
};

using PoolPtr = std::shared_ptr<Pool>;

// By handle; null if there is none.
PoolPtr find_pool(CUmemoryPool handle);
const PoolPtr &default_pool(Device &device);
const PoolPtr &current_pool(Device &device);
// The host has synchronized with the device: pools shrink to their thresholds.
void release_unused(const Device &device);
// All pools of a device shrink as far as they can.
void trim_pools(const Device &device);
// Destroys all pools with the memory that contexts have left in them; no work uses it.
void forget_pools();

} // namespace soft
