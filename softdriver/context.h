#pragma once

#include "device.h"
#include "waiting.h"

#include <cstdint>
#include <map>
#include <memory>

namespace soft {

struct Stream;
struct ThreadState;

struct Context {
    CUcontext handle = nullptr;
    uint64_t id = 0;
    Device *device = nullptr;
    unsigned flags = 0;
    bool primary = false;
    bool alive = true;
    std::shared_ptr<Stream> legacy;
    std::map<const ThreadState *, std::shared_ptr<Stream>> per_thread;
};

using ContextPtr = std::shared_ptr<Context>;

// A destroyed primary context comes back under its old handle.
void revive_context(const ContextPtr &context);
ContextPtr create_context(Device &device, unsigned flags, bool primary);
// Returns when the context has no work, not even what other threads submit meanwhile.
void finish_context(Lock &lock, const Context &context);
// Waits for the context's work, then destroys it and everything in it.
void destroy_context(Lock &lock, const ContextPtr &context);
// By handle; null if there is none.
ContextPtr find_context(CUcontext handle);
// A sticky error: the device is lost, and what it had not done yet is never done.
void lose_device(Device &device, CUresult status);

} // namespace soft
