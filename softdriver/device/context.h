#pragma once

#include "base/waiting.h"
#include "device/device.h"
#include "device/limits.h"
#include "work/operation.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>

namespace soft {

struct Stream;
struct ThreadState;

struct Context {
    CUcontext handle = nullptr;
    uint64_t id = 0;
    Device *device = nullptr;
    unsigned flags = 0;
    bool primary = false;
    unsigned uses = 1; // of a created context: cuCtxAttach adds to it
    Limits limits;
    CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
    std::vector<OperationPtr> gates; // everything submitted from now on waits for them
    bool alive = true;
    std::set<uint64_t> peers; // ids of the contexts whose memory kernels of this one may access
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
bool valid_context_flags(unsigned flags);
// Makes an operation wait for what the context waits for.
void pass_gates(Context &context, Operation &operation);
// A sticky error: the device is lost, and what it had not done yet is never done.
void lose_device(Device &device, CUresult status);

} // namespace soft
