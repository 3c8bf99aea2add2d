#pragma once

#include "base/handles.h"
#include "base/waiting.h"
#include "device/device.h"
#include "device/limits.h"
#include "work/operation.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace soft {

namespace ptx {
class Heap;
}
struct Stream;
struct ThreadState;

struct Context {
    CUcontext handle = nullptr;
    uint64_t id = 0;
    Device *device = nullptr;
    unsigned flags = 0;
    bool primary = false;
    // The reference count of a created context, which cuCtxAttach and cuCtxDetach change.
    unsigned uses = 1;
    Limits limits;
    // The memory for malloc in kernels; null until a kernel that uses it is launched.
    std::shared_ptr<ptx::Heap> heap;
    CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
    std::map<int, std::string> coredumps; // its settings of coredumps (device/coredump.h)
    // The operations of cuCtxWaitEvent: all later work of the context waits for them.
    std::vector<OperationPtr> gates;
    bool alive = true;
    std::set<uint64_t> peers; // ids of the contexts to whose memory this context has peer access
    std::shared_ptr<Stream> legacy;
    std::map<const ThreadState *, std::shared_ptr<Stream>> per_thread;
};

using ContextPtr = std::shared_ptr<Context>;

// Retains the primary context of a device, as cuDevicePrimaryCtxRetain does, and releases it.
CUresult retain_primary(Device &device, ContextPtr &context);
CUresult release_primary(Lock &lock, Device &device);
// Makes a destroyed primary context usable again. Its handle stays the same.
void revive_context(const ContextPtr &context);
ContextPtr create_context(Device &device, unsigned flags, bool primary);
// Waits until the context has no unfinished work, even if other threads submit new work meanwhile.
void finish_context(Lock &lock, const Context &context);
// Waits for the context's work, then destroys it and everything in it.
void destroy_context(Lock &lock, const ContextPtr &context);
// Finds a context by its handle. Returns null if there is none.
ContextPtr find_context(CUcontext handle);
// Returns the handle of a context. For a green context this is the handle of cuCtxFromGreenCtx.
CUcontext handle_of(const ContextPtr &context);

// This header cannot include the headers of the folders that build on it. When the library is
// loaded, these folders register functions with add_context_end() and the functions after it.
//
// When a context is destroyed, the objects of these folders in the context end in this order.
enum class ContextEnd { Captures, Streams, Code, Arrays, Textures, Libraries, Memory, Count };
void add_context_end(ContextEnd when, void (*end)(const Context &));
// Called when a device is lost, after its unfinished work was dropped.
void add_device_loss(void (*lose)());
// Registers the functions of green contexts, whose handles are not in the table of contexts.
// `find` returns the green context of a handle. `handle` returns the handle of a green context,
// and null for any other context.
void add_green_contexts(ContextPtr (*find)(CUcontext), CUcontext (*handle)(const ContextPtr &));

// Erases the objects that belong to a context.
template <class Object> void erase_owned(HandleTable<Object> &table, const Context &owner) {
    std::vector<uintptr_t> handles;
    for (const auto &entry : table)
        if (entry.second->owner == &owner)
            handles.push_back(entry.first);
    for (uintptr_t handle : handles)
        table.erase(handle);
}

bool valid_context_flags(unsigned flags);
// Makes the operation wait for all gates of the context.
void pass_gates(Context &context, Operation &operation);
// Sets a sticky error: the device is lost, and its unfinished work is dropped.
void lose_device(Device &device, CUresult status);

} // namespace soft
