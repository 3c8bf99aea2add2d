#include "stream/green.h"

#include "api/call.h"
#include "api/state.h"
#include "device/device_attributes.h"

#include <algorithm>

// This file implements green contexts and the resources that they are made of.
//
// cuCtxFromGreenCtx returns the primary context itself. So what a program does with it is right,
// but streams that it makes then do not belong to the green context.

namespace soft {
namespace {

constexpr int processors_type = 1;   // CU_DEV_RESOURCE_TYPE_SM
constexpr unsigned split_flags = 3;  // all flags of cuDevSmResourceSplitByCount
constexpr unsigned ignore_pairs = 1; // CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING
constexpr unsigned pair = 2;         // multiprocessors that are scheduled together
constexpr unsigned needed_flags = 1; // CU_GREEN_CTX_DEFAULT_STREAM
constexpr uint32_t written_here = 0x736f6674;

// A CUdevResource: older headers lack it, and the driver has the first 96 bytes for itself.
struct Resource {
    int type = 0;
    uint32_t mark = 0;
    int device = 0;
    unsigned split = 0; // the number of the split that it came from; 0: the whole device
    unsigned first = 0; // its first multiprocessor
    unsigned char unused[76] = {};
    unsigned count = 0, minimum = 0, alignment = 0;
    unsigned char more[36] = {};

    bool valid() const { return type == processors_type && mark == written_here; }
};

#if CUDA_VERSION >= 12040
static_assert(sizeof(Resource) == sizeof(CUdevResource));
#endif

// What cuDevResourceGenerateDesc has described. Programs cannot destroy descriptions, so equal ones
// have one handle.
struct Description {
    int device;
    unsigned count;
    bool operator<(const Description &other) const {
        return std::tie(device, count) < std::tie(other.device, other.count);
    }
};

struct Greens {
    HandleTable<Green> table{0x5cd000001000};
    std::map<uint64_t, std::weak_ptr<Green>> of_streams;
    std::map<Description, uintptr_t> descriptions;
    uintptr_t next_description = 0x5ce000001000;
    unsigned splits = 0;
};

// Guarded by the state's mutex; never destroyed, as the state.
Greens &greens() {
    static Greens *all = new Greens;
    return *all;
}

unsigned processors_of(const Device &device) {
    return static_cast<unsigned>(read_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
}

CUresult write_resource(const Device &device, unsigned count, CUdevResource *target,
                        CUdevResourceType type) {
    if (!target)
        return CUDA_ERROR_INVALID_VALUE;
    if (static_cast<int>(type) != processors_type)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    Resource resource;
    resource.type = processors_type;
    resource.mark = written_here;
    resource.device = device.ordinal;
    resource.count = count;
    resource.minimum = resource.alignment = pair;
    *reinterpret_cast<Resource *>(target) = resource;
    return CUDA_SUCCESS;
}

// Splits the input into groups of `size` multiprocessors. `rest` gets those that are left over.
void split(const Resource &input, unsigned size, unsigned groups, Resource *result,
           Resource *rest) {
    Resource part = input;
    part.split = ++greens().splits;
    part.count = size;
    for (unsigned i = 0; i < groups; i++) {
        result[i] = part;
        part.first += size;
    }
    part.count = input.count - size * groups;
    if (rest)
        *rest = part.count ? part : Resource();
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

} // namespace

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

SOFT_API(cuDeviceGetDevResource,
         (CUdevice ordinal, CUdevResource *resource, CUdevResourceType type),
         (ordinal, resource, type)) {
    const Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    return write_resource(*device, processors_of(*device), resource, type);
}

SOFT_API(cuCtxGetDevResource, (CUcontext handle, CUdevResource *resource, CUdevResourceType type),
         (handle, resource, type)) {
    ContextPtr context = find_context(handle);
    if (CUresult status = context_status(context.get()))
        return status;
    return write_resource(*context->device, processors_of(*context->device), resource, type);
}

SOFT_API(cuGreenCtxGetDevResource,
         (CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type),
         (handle, resource, type)) {
    GreenPtr green;
    if (CUresult status = find_green(handle, green))
        return status;
    return write_resource(*green->context->device, green->processors, resource, type);
}

SOFT_STREAM_API(cuStreamGetDevResource,
                (CUstream handle, CUdevResource *resource, CUdevResourceType type),
                (handle, resource, type)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    GreenPtr green = green_of(*stream);
    const Device &device = *stream->owner->device;
    return write_resource(device, green ? green->processors : processors_of(device), resource,
                          type);
}

SOFT_API(cuDevSmResourceSplitByCount,
         (CUdevResource * result, unsigned *groups, const CUdevResource *given,
          CUdevResource *remainder, unsigned flags, unsigned least),
         (result, groups, given, remainder, flags, least)) {
    if (!groups || !given || (flags & ~split_flags))
        return CUDA_ERROR_INVALID_VALUE;
    const Resource input = *reinterpret_cast<const Resource *>(given);
    if (!input.valid())
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (least > input.count)
        return CUDA_ERROR_INVALID_VALUE;
    if (input.split) // only a green context makes a part a whole
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned step = flags & ignore_pairs ? 1 : pair;
    unsigned size = std::max((least + step - 1) / step, 1u) * step;
    unsigned possible = input.count / size;
    if (!result) {
        *groups = possible;
        return CUDA_SUCCESS;
    }
    *groups = std::min(*groups, possible);
    if (!*groups)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    split(input, size, *groups, reinterpret_cast<Resource *>(result),
          reinterpret_cast<Resource *>(remainder));
    return CUDA_SUCCESS;
}

SOFT_API(cuDevResourceGenerateDesc,
         (CUdevResourceDesc * description, CUdevResource *given, unsigned count),
         (description, given, count)) {
    if (!description || !given || !count)
        return CUDA_ERROR_INVALID_VALUE;
    auto resources = reinterpret_cast<const Resource *>(given);
    Description total{resources[0].device, 0};
    for (unsigned i = 0; i < count; i++) {
        if (!resources[i].valid())
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        if (resources[i].device != total.device || resources[i].split != resources[0].split)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        for (unsigned j = 0; j < i; j++)
            if (resources[j].first == resources[i].first)
                return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        total.count += resources[i].count;
    }
    uintptr_t &handle = greens().descriptions[total];
    if (!handle)
        handle = greens().next_description++;
    *description = reinterpret_cast<CUdevResourceDesc>(handle);
    return CUDA_SUCCESS;
}

SOFT_API(cuGreenCtxCreate,
         (CUgreenCtx * handle, CUdevResourceDesc description, CUdevice ordinal, unsigned flags),
         (handle, description, ordinal, flags)) {
    Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!handle || flags != needed_flags)
        return CUDA_ERROR_INVALID_VALUE;
    auto &all = greens().descriptions;
    auto found = std::find_if(all.begin(), all.end(), [&](const auto &entry) {
        return entry.second == reinterpret_cast<uintptr_t>(description);
    });
    if (found == all.end() || found->first.device != ordinal)
        return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context;
    if (CUresult status = retain_primary(*device, context))
        return status;
    auto green = std::make_shared<Green>();
    green->id = state().new_id();
    green->context = context;
    green->context_id = context->id;
    green->processors = found->first.count;
    green->handle = reinterpret_cast<CUgreenCtx>(greens().table.insert(green, state().reuse()));
    *handle = green->handle;
    return CUDA_SUCCESS;
}

// The streams stay, and calls with them return CUDA_ERROR_CONTEXT_IS_DESTROYED.
SOFT_API(cuGreenCtxDestroy, (CUgreenCtx handle), (handle)) {
    GreenPtr green;
    CUresult status = find_green(handle, green);
    if (!green)
        return status;
    greens().table.erase(reinterpret_cast<uintptr_t>(handle));
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
    *context = green->context->handle;
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
    prune(greens().of_streams);
    greens().of_streams[stream->id] = green;
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

} // namespace soft
