#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"
#include "device/coredump.h"

#include <algorithm>
#include <cstring>

namespace soft {
namespace {

// The functions that other folders have registered: see context.h.
void (*context_ends[static_cast<int>(ContextEnd::Count)])(const Context &);
void (*device_loss)();
ContextPtr (*find_green)(CUcontext);
CUcontext (*green_handle)(const ContextPtr &);

} // namespace

void revive_context(const ContextPtr &context) {
    context->alive = true;
    context->id = state().new_id();
    context->limits = Limits();
    context->cache = CU_FUNC_CACHE_PREFER_NONE;
    context->coredumps = coredumps_of_process();
    context->legacy = create_stream(context, StreamKind::Legacy, CU_STREAM_DEFAULT, 0);
}

ContextPtr create_context(Device &device, unsigned flags, bool primary) {
    auto context = std::make_shared<Context>();
    context->device = &device;
    context->flags = flags;
    context->primary = primary;
    revive_context(context);
    context->handle =
        reinterpret_cast<CUcontext>(state().contexts.insert(context, state().reuse()));
    return context;
}

void add_context_end(ContextEnd when, void (*end)(const Context &)) {
    context_ends[static_cast<int>(when)] = end;
}
void add_device_loss(void (*lose)()) { device_loss = lose; }
void add_green_contexts(ContextPtr (*find)(CUcontext), CUcontext (*handle)(const ContextPtr &)) {
    find_green = find;
    green_handle = handle;
}

ContextPtr find_context(CUcontext handle) {
    ContextPtr context = state().contexts.find(reinterpret_cast<uintptr_t>(handle));
    return context ? context : find_green(handle);
}

CUcontext handle_of(const ContextPtr &context) {
    if (!context)
        return nullptr;
    CUcontext green = green_handle(context);
    return green ? green : context->handle;
}

void finish_context(Lock &lock, const Context &context) {
    for (;;) {
        std::vector<OperationPtr> targets = context_targets(context);
        if (targets.empty())
            return;
        state().scheduler.finish(lock, targets);
    }
}

void destroy_context(Lock &lock, const ContextPtr &context) {
    State &driver = state();
    finish_context(lock, *context);
    if (!context->alive)
        return; // while this thread waited, another thread destroyed the context
    context->alive = false;
    driver.races.learn(driver.races.tails(*context));
    driver.races.ended(*context);
    // Other contexts keep this context's id in `peers`, because ids are never reused.
    context->peers.clear();
    for (auto *end : context_ends)
        end(*context);
    if (!context->primary)
        driver.contexts.erase(reinterpret_cast<uintptr_t>(context->handle));
    context->legacy = nullptr;
    context->per_thread.clear();
    context->gates.clear();
    context->heap = nullptr;
}

void lose_device(Device &device, CUresult status) {
    device.sticky = status;
    state().races.lost(device);
    state().scheduler.drop([&](const Stream &stream) { return stream.owner->device == &device; });
    device_loss();
}

SOFT_API(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice ordinal),
         (context, flags, ordinal)) {
    Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!context || !valid_context_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    if (device->sticky)
        return device->sticky;
    ContextPtr created = create_context(*device, flags, false);
    call.thread->contexts.push_back(created);
    *context = created->handle;
    return CUDA_SUCCESS;
}

// Only a device that MPS shares has execution affinities. An empty list asks for none.
SOFT_API(cuCtxCreate_v3,
         (CUcontext * context, CUexecAffinityParam *affinity, int count, unsigned flags,
          CUdevice ordinal),
         (context, affinity, count, flags, ordinal)) {
    if (count > 0)
        return affinity ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : CUDA_ERROR_INVALID_VALUE;
    return cuCtxCreate_v2_body(call, context, flags, ordinal);
}

namespace {

// CUctxCreateParams, which older headers lack. All zero, it asks for a regular context.
struct ContextParameters {
    CUexecAffinityParam *affinity;
    int affinity_count;
    const void *graphics; // a command queue whose resources the context shares
};

} // namespace

SOFT_API(cuCtxCreate_v4,
         (CUcontext * context, CUctxCreateParams *given, unsigned flags, CUdevice ordinal),
         (context, given, flags, ordinal)) {
    ContextParameters parameters = {};
    if (given)
        std::memcpy(&parameters, given, sizeof parameters);
    if (parameters.graphics)
        return not_supported("cigParams: contexts that share resources with graphics");
    return cuCtxCreate_v3_body(call, context, parameters.affinity, parameters.affinity_count, flags,
                               ordinal);
}

SOFT_API(cuCtxDestroy_v2, (CUcontext handle), (handle)) {
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = call.require(Needs::Init))
        return status;
    ContextPtr context = find_context(handle);
    if (!context || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult status = context->device->sticky;
    destroy_context(call.lock, context);
    auto &stack = call.thread->contexts;
    if (!stack.empty() && stack.back() == context)
        stack.pop_back();
    return status;
}

SOFT_API(cuCtxDestroy, (CUcontext handle), (handle)) { return cuCtxDestroy_v2_body(call, handle); }

// cuCtxAttach and cuCtxDetach change `uses` of a context. cuCtxDestroy ignores this count.
SOFT_API(cuCtxAttach, (CUcontext * handle, unsigned flags), (handle, flags)) {
    if (!handle || flags)
        return CUDA_ERROR_INVALID_VALUE;
    call.context->uses++;
    *handle = call.context->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxDetach, (CUcontext handle), (handle)) {
    if (!call.context || call.context->handle != handle)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (call.context->uses > 1) {
        call.context->uses--;
        return CUDA_SUCCESS;
    }
    return cuCtxDestroy_v2_body(call, handle);
}

SOFT_API(cuCtxPushCurrent_v2, (CUcontext handle), (handle)) {
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context = find_context(handle);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    call.thread->contexts.push_back(context);
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxPopCurrent_v2, (CUcontext * handle), (handle)) {
    auto &stack = call.thread->contexts;
    if (stack.empty())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (handle)
        *handle = handle_of(stack.back());
    stack.pop_back();
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxPushCurrent, (CUcontext handle), (handle)) {
    return cuCtxPushCurrent_v2_body(call, handle);
}

SOFT_API(cuCtxPopCurrent, (CUcontext * handle), (handle)) {
    return cuCtxPopCurrent_v2_body(call, handle);
}

SOFT_API(cuCtxSetCurrent, (CUcontext handle), (handle)) {
    auto &stack = call.thread->contexts;
    ContextPtr context = find_context(handle);
    if (handle && !context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!stack.empty())
        stack.pop_back();
    if (context)
        stack.push_back(context);
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetCurrent, (CUcontext * handle), (handle)) {
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = handle_of(call.context);
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetDevice, (CUdevice * device), (device)) {
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = call.require(Needs::Current))
        return status;
    *device = call.context->device->ordinal;
    return CUDA_SUCCESS;
}

// Finds the context of a handle. A null handle means the current context.
static ContextPtr named_or_current(Call &call, CUcontext handle) {
    return handle ? find_context(handle) : call.context;
}

SOFT_API(cuCtxGetDevice_v2, (CUdevice * device, CUcontext handle), (device, handle)) {
    ContextPtr context = named_or_current(call, handle);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetFlags, (unsigned *flags), (flags)) {
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = call.context->flags;
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetId, (CUcontext handle, unsigned long long *id), (handle, id)) {
    ContextPtr context = named_or_current(call, handle);
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = context->id;
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetApiVersion, (CUcontext handle, unsigned *version), (handle, version)) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context = named_or_current(call, handle);
    if (!context || !context->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest)) {
    if (least)
        *least = least_priority;
    if (greatest)
        *greatest = greatest_priority;
    return CUDA_SUCCESS;
}

static CUresult synchronize(Call &call, const ContextPtr &context) {
    if (CUresult status = context_status(context.get()))
        return status;
    if (CUresult status = refuse_waiting(*call.thread, *context))
        return status;
    auto awaited = state().races.tails(*context);
    state().scheduler.finish(call.lock, context_targets(*context));
    state().races.learn(awaited);
    release_unused(*context->device);
    return context_status(context.get());
}

SOFT_API(cuCtxSynchronize_v2, (CUcontext handle), (handle)) {
    return synchronize(call, named_or_current(call, handle));
}

SOFT_API_BARE(cuCtxSynchronize) { return synchronize(call, call.context); }

} // namespace soft
