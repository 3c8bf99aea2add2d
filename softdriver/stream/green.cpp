#include "stream/green.h"

#include "api/call.h"
#include "api/state.h"

#include <algorithm>

// This file implements green contexts.

namespace soft {
namespace {

constexpr unsigned with_default_stream = 1; // CU_GREEN_CTX_DEFAULT_STREAM
constexpr int first_without_flags = 13050;

struct Greens {
    HandleTable<Green> table{0x5cd000001000};
    HandleTable<Green> contexts{0x5cf000001000}; // by handle of cuCtxFromGreenCtx
    std::map<uint64_t, std::weak_ptr<Green>> of_streams;
};

// Guarded by the state's mutex. Never destroyed, like the state.
Greens &greens() {
    static Greens *all = new Greens;
    return *all;
}

// Completes a description: adds all multiprocessors if it describes only queues, and the default
// queues if it describes no queues.
Parts with_defaults(Parts parts, const Device &device) {
    const Parts all = whole(device);
    if (!parts.processors)
        parts.processors = all.processors;
    if (!parts.queues.limit)
        parts.queues = all.queues;
    return parts;
}

CUresult find_green(CUgreenCtx handle, GreenPtr &green) {
    green = greens().table.find(reinterpret_cast<uintptr_t>(handle));
    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    return green->alive() ? context_status(green->context.get()) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

std::vector<StreamPtr> streams_of(const Green &green) {
    std::vector<StreamPtr> found;
    for (const auto &entry : state().streams)
        if (green_of(*entry.second).get() == &green)
            found.push_back(entry.second);
    return found;
}

// Finds a green context and an event. Returns an error if one of its streams is being captured.
CUresult find_both(CUgreenCtx handle, CUevent event_handle, GreenPtr &green, EventPtr &event) {
    if (CUresult status = find_green(handle, green))
        return status;
    if (CUresult status = find_event(event_handle, event))
        return status;
    CUresult captured = CUDA_SUCCESS;
    for (const StreamPtr &stream : streams_of(*green))
        if (CUresult status = refuse_captured(*stream))
            captured = status;
    return captured;
}

CUresult wait_for(Stream &stream, const OperationPtr &recorded) {
    auto operation = std::make_shared<Operation>();
    operation->waits.push_back(recorded);
    return submit(stream, std::move(operation));
}

// Forgets the streams that do not exist any more.
void prune(std::map<uint64_t, std::weak_ptr<Green>> &of_streams) {
    std::set<uint64_t> alive;
    for (const auto &entry : state().streams)
        alive.insert(entry.second->id);
    for (auto entry = of_streams.begin(); entry != of_streams.end();)
        entry = alive.count(entry->first) ? std::next(entry) : of_streams.erase(entry);
}

void join(const GreenPtr &green, const StreamPtr &stream) {
    prune(greens().of_streams);
    greens().of_streams[stream->id] = green;
}

} // namespace

GreenPtr green_of(const ContextPtr &context) {
    for (const auto &entry : greens().table) {
        const ContextPtr &other = entry.second->as_context;
        if (!other.owner_before(context) && !context.owner_before(other))
            return entry.second;
    }
    return nullptr;
}

// Returns the handle of cuCtxFromGreenCtx, or null if the context is not green.
static CUcontext handle_of_green(const ContextPtr &context) {
    GreenPtr green = green_of(context);
    return green ? green->context_handle : nullptr;
}

// Finds the green context of a handle of cuCtxFromGreenCtx, or null.
static ContextPtr find_green_context(CUcontext handle) {
    GreenPtr green = greens().contexts.find(reinterpret_cast<uintptr_t>(handle));
    return green && green->alive() ? green->as_context : nullptr;
}

void join_green(const ContextPtr &current, const StreamPtr &stream) {
    if (GreenPtr green = green_of(current))
        join(green, stream);
}

GreenPtr green_of(const Stream &stream) {
    auto found = greens().of_streams.find(stream.id);
    return found == greens().of_streams.end() ? nullptr : found->second.lock();
}

bool lost_its_green(const Stream &stream) {
    auto &all = greens().of_streams;
    if (all.empty())
        return false;
    auto found = all.find(stream.id);
    return found != all.end() && found->second.expired();
}

SOFT_API(cuGreenCtxGetDevResource,
         (CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type),
         (handle, resource, type)) {
    GreenPtr green;
    if (CUresult status = find_green(handle, green))
        return status;
    return write_resource(green->parts, type, resource);
}

SOFT_STREAM_API(cuStreamGetDevResource,
                (CUstream handle, CUdevResource *resource, CUdevResourceType type),
                (handle, resource, type)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    GreenPtr green = green_of(*stream);
    const Parts parts = green ? green->parts : whole(*stream->owner->device);
    constexpr int processors_type = 1;             // CU_DEV_RESOURCE_TYPE_SM
    if (static_cast<int>(type) != processors_type) // documented to accept queues, too
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    return write_resource(parts, type, resource);
}

SOFT_API(cuGreenCtxCreate,
         (CUgreenCtx * handle, CUdevResourceDesc description, CUdevice ordinal, unsigned flags),
         (handle, description, ordinal, flags)) {
    Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    bool optional = state().settings.driver >= first_without_flags;
    if (!handle || (flags != with_default_stream && (flags || !optional)))
        return CUDA_ERROR_INVALID_VALUE;
    const Parts all = whole(*device);
    const Parts *parts = description ? described(description) : &all;
    if (!parts || parts->device != ordinal)
        return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context;
    if (CUresult status = retain_primary(*device, context))
        return status;
    auto green = std::make_shared<Green>();
    green->id = state().new_id();
    green->context = context;
    green->context_id = context->id;
    green->parts = with_defaults(*parts, *device);
    green->handle = reinterpret_cast<CUgreenCtx>(greens().table.insert(green, state().reuse()));
    green->as_context = ContextPtr(std::make_shared<ContextPtr>(context), context.get());
    green->context_handle =
        reinterpret_cast<CUcontext>(greens().contexts.insert(green, state().reuse()));
    *handle = green->handle;
    return CUDA_SUCCESS;
}

// The streams of the green context are not destroyed, but calls with them return
// CUDA_ERROR_CONTEXT_IS_DESTROYED.
SOFT_API(cuGreenCtxDestroy, (CUgreenCtx handle), (handle)) {
    GreenPtr green;
    CUresult status = find_green(handle, green);
    if (!green)
        return status;
    greens().table.erase(reinterpret_cast<uintptr_t>(handle));
    greens().contexts.erase(reinterpret_cast<uintptr_t>(green->context_handle));
    Device &device = *green->context->device;
    bool retained = green->alive();
    green = nullptr;
    CUresult released = retained ? release_primary(call.lock, device) : CUDA_SUCCESS;
    return status ? status : released;
}

SOFT_API(cuCtxFromGreenCtx, (CUcontext * context, CUgreenCtx handle), (context, handle)) {
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    GreenPtr green;
    if (CUresult status = find_green(handle, green))
        return status;
    *context = green->context_handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuGreenCtxGetId, (CUgreenCtx handle, unsigned long long *id), (handle, id)) {
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    GreenPtr green;
    if (CUresult status = find_green(handle, green))
        return status;
    *id = green->id;
    return CUDA_SUCCESS;
}

SOFT_API(cuGreenCtxStreamCreate,
         (CUstream * handle, CUgreenCtx green_handle, unsigned flags, int priority),
         (handle, green_handle, flags, priority)) {
    if (!handle || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    GreenPtr green;
    if (CUresult status = find_green(green_handle, green))
        return status;
    StreamPtr stream = create_stream(green->context, StreamKind::Created, flags, priority);
    for (const OperationPtr &gate : green->gates)
        if (CUresult status = wait_for(*stream, gate))
            return status;
    join(green, stream);
    stream->handle = reinterpret_cast<CUstream>(state().streams.insert(stream, state().reuse()));
    *handle = stream->handle;
    return CUDA_SUCCESS;
}

// Records the event in a new stream, which waits for all streams of the green context.
SOFT_API(cuGreenCtxRecordEvent, (CUgreenCtx handle, CUevent event_handle), (handle, event_handle)) {
    GreenPtr green;
    EventPtr event;
    if (CUresult status = find_both(handle, event_handle, green, event))
        return status;
    if (event->owner != green->context.get())
        return CUDA_ERROR_INVALID_HANDLE;
    auto operation = std::make_shared<Operation>();
    for (const StreamPtr &stream : streams_of(*green)) {
        OperationPtr last;
        if (CUresult status = submit(*stream, std::make_shared<Operation>(), &last))
            return status;
        operation->waits.push_back(last);
    }
    StreamPtr stream =
        create_stream(green->context, StreamKind::Created, CU_STREAM_NON_BLOCKING, 0);
    return record(*event, *stream, std::move(operation));
}

SOFT_API(cuGreenCtxWaitEvent, (CUgreenCtx handle, CUevent event_handle), (handle, event_handle)) {
    GreenPtr green;
    EventPtr event;
    if (CUresult status = find_both(handle, event_handle, green, event))
        return status;
    if (event->capture) {
        invalidate(*event->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (!event->recorded)
        return CUDA_SUCCESS;
    for (const StreamPtr &stream : streams_of(*green))
        if (CUresult status = wait_for(*stream, event->recorded))
            return status;
    auto &gates = green->gates;
    gates.erase(std::remove_if(gates.begin(), gates.end(), [](auto &gate) { return gate->done(); }),
                gates.end());
    gates.push_back(event->recorded);
    return CUDA_SUCCESS;
}

SOFT_API(cuStreamGetGreenCtx, (CUstream handle, CUgreenCtx *result), (handle, result)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (!result)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->kind == StreamKind::Legacy)
        if (CUresult status = refuse_implicit(*stream->owner))
            return status;
    GreenPtr green = green_of(*stream);
    *result = green ? green->handle : nullptr;
    return CUDA_SUCCESS;
}

[[gnu::constructor]] static void add_green() {
    add_green_contexts(find_green_context, handle_of_green);
}

} // namespace soft
