#include "stream/resources.h"

#include "api/call.h"
#include "api/state.h"
#include "device/device_attributes.h"
#include "stream/green.h"

#include <algorithm>
#include <cstdlib>

// This file implements the resources that green contexts are made of: multiprocessors, which can be
// split into groups, and queues.

namespace soft {
namespace {

constexpr int processors_type = 1;      // CU_DEV_RESOURCE_TYPE_SM
constexpr int queue_config_type = 1000; // CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG
constexpr int queue_type = 10000;       // CU_DEV_RESOURCE_TYPE_WORKQUEUE
constexpr int first_with_queues = 13010;
constexpr int last_scope = 1;        // CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED
constexpr unsigned split_flags = 3;  // all flags of cuDevSmResourceSplitByCount
constexpr unsigned ignore_pairs = 1; // CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING
constexpr unsigned backfill = 1;     // CU_DEV_SM_RESOURCE_GROUP_BACKFILL
constexpr unsigned group_flags = 7;  // all flags of CU_DEV_SM_RESOURCE_GROUP_PARAMS
constexpr unsigned pair = 2;         // multiprocessors that are scheduled together
constexpr unsigned most_coscheduled = 32;
constexpr uint32_t written_here = 0x736f6674;

struct Processors {
    unsigned count, minimum, alignment, flags, domain;
};

struct QueueConfig {
    int device;
    unsigned limit;
    int scope;
};

// A CUdevResource, which older headers lack. Its first 96 bytes are private to the driver.
struct Resource {
    int type = 0;
    uint32_t mark = 0;
    int device = 0;
    unsigned is_part = 0; // it came from a split
    unsigned first = 0;   // its first multiprocessor
    unsigned is_rest = 0; // it is the remainder of a split
    unsigned char unused[72] = {};
    union {
        unsigned char all[40] = {};
        Processors processors;
        QueueConfig queues;
    };
    void *next = nullptr;

    bool valid() const { return mark == written_here; }
    bool has_processors() const { return valid() && type == processors_type; }
    bool has_queues() const { return valid() && (type == queue_config_type || type == queue_type); }
};

// A CU_DEV_SM_RESOURCE_GROUP_PARAMS, which came with CUDA 13.1.
struct GroupParams {
    unsigned count, coscheduled, preferred, flags, domain, reserved[11];

    // Returns how many multiprocessors are scheduled together.
    unsigned together(const Processors &whole) const {
        return coscheduled ? coscheduled : whole.alignment;
    }
};

#if CUDA_VERSION >= 12040
static_assert(sizeof(Resource) == sizeof(CUdevResource));
#endif
#if CUDA_VERSION >= 13010
static_assert(sizeof(GroupParams) == sizeof(CU_DEV_SM_RESOURCE_GROUP_PARAMS));
#endif

struct Descriptions {
    // Programs cannot destroy descriptions, so equal ones have one handle.
    std::map<std::tuple<int, unsigned, unsigned, int>, uintptr_t> handles;
    std::map<uintptr_t, Parts> parts;
    uintptr_t next = 0x5ce000001000;
};

// Guarded by the state's mutex. Never destroyed, like the state.
Descriptions &descriptions() {
    static Descriptions *all = new Descriptions;
    return *all;
}

// The number of queues between the host and a device: CUDA_DEVICE_MAX_CONNECTIONS if it is valid,
// else 8.
unsigned connections() {
    const char *text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    long count = text ? std::strtol(text, nullptr, 10) : 0;
    return count >= 1 && count <= 32 ? static_cast<unsigned>(count) : 8;
}

bool known(int type) {
    bool queues = type == queue_config_type || type == queue_type;
    return type == processors_type || (queues && state().settings.driver >= first_with_queues);
}

// Writes the groups of a split, which are consecutive, and the rest of the input.
void write_groups(const Resource &input, const std::vector<Processors> &groups, Resource *result,
                  Resource *rest) {
    Resource part = input;
    part.is_part = 1;
    part.is_rest = 0;
    unsigned left = input.processors.count;
    for (const Processors &group : groups) {
        part.processors = group;
        *result++ = part;
        part.first += group.count;
        left -= group.count;
    }
    part.is_rest = 1;
    part.processors = input.processors;
    part.processors.count = left;
    if (rest)
        *rest = left ? part : Resource();
}

// Finds the size of one group of cuDevSmResourceSplit. `left` is what remains after the earlier
// groups.
CUresult place_group(const Processors &whole, const GroupParams &params, unsigned left,
                     unsigned &size) {
    unsigned together = params.together(whole);
    bool fill = params.flags & backfill;
    if ((params.flags & ~group_flags) || together % 2 || together > most_coscheduled ||
        params.count % 2 || params.count > whole.count)
        return CUDA_ERROR_INVALID_VALUE;
    if (params.flags & ~backfill) // no multiprocessor of this device is in a locality domain
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    size = params.count;
    if (!size)
        size = left - left % (fill ? pair : together);
    bool fits = size <= left && (fill || size % together == 0);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

// Places all groups of cuDevSmResourceSplit. With `must_exist`, none may be empty.
CUresult place_groups(const Processors &whole, const GroupParams *params, unsigned count,
                      bool must_exist, std::vector<Processors> &groups) {
    unsigned left = whole.count;
    for (unsigned i = 0; i < count; i++) {
        unsigned size;
        if (CUresult status = place_group(whole, params[i], left, size))
            return status;
        unsigned together = params[i].together(whole);
        if (must_exist && size < together)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        groups.push_back({size, whole.minimum, together, params[i].flags, 0});
        left -= size;
    }
    return CUDA_SUCCESS;
}

// Adds multiprocessors to a description. `first` is the first resource of the description that has
// some. cuda.h says that both must be of the same split, but an H200 accepts parts of two splits.
CUresult add_processors(const Resource &resource, const Resource &first, Parts &total) {
    if (resource.processors.alignment != first.processors.alignment)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    total.processors += resource.processors.count;
    return CUDA_SUCCESS;
}

CUresult add_queues(const Resource &resource, Parts &total) {
    const QueueConfig &config = resource.queues;
    if (total.queues.limit || !config.limit || config.device != resource.device ||
        config.scope < 0 || config.scope > last_scope)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    total.queues = {config.limit, config.scope};
    return CUDA_SUCCESS;
}

// Returns whether the two resources have a multiprocessor in common.
bool overlap(const Resource &one, const Resource &other) {
    return one.has_processors() && other.has_processors() &&
           one.first < other.first + other.processors.count &&
           other.first < one.first + one.processors.count;
}

// Adds up the resources of a description.
CUresult add_up(const Resource *resources, unsigned count, Parts &total) {
    const Resource *first =
        std::find_if(resources, resources + count, [](auto &one) { return one.has_processors(); });
    total.device = resources[0].device;
    for (unsigned i = 0; i < count; i++) {
        const Resource &one = resources[i];
        if (!one.has_processors() && !one.has_queues())
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        if (one.device != total.device)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        if (std::any_of(resources, resources + i, [&](auto &other) { return overlap(one, other); }))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        if (CUresult status =
                one.has_processors() ? add_processors(one, *first, total) : add_queues(one, total))
            return status;
    }
    return CUDA_SUCCESS;
}

} // namespace

Parts whole(const Device &device) {
    int count = read_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return {device.ordinal, static_cast<unsigned>(count), {connections(), 0}};
}

CUresult write_resource(const Parts &parts, CUdevResourceType type, CUdevResource *target) {
    if (!target)
        return CUDA_ERROR_INVALID_VALUE;
    if (!known(static_cast<int>(type)))
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    Resource resource;
    resource.type = static_cast<int>(type);
    resource.mark = written_here;
    resource.device = parts.device;
    if (resource.has_processors())
        resource.processors = {parts.processors, pair, pair, 0, 0};
    else
        resource.queues = {parts.device, parts.queues.limit, parts.queues.scope};
    *reinterpret_cast<Resource *>(target) = resource;
    return CUDA_SUCCESS;
}

const Parts *described(CUdevResourceDesc description) {
    auto &parts = descriptions().parts;
    auto found = parts.find(reinterpret_cast<uintptr_t>(description));
    return found == parts.end() ? nullptr : &found->second;
}

SOFT_API(cuDeviceGetDevResource,
         (CUdevice ordinal, CUdevResource *resource, CUdevResourceType type),
         (ordinal, resource, type)) {
    const Device *device = find_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    return write_resource(whole(*device), type, resource);
}

SOFT_API(cuCtxGetDevResource, (CUcontext handle, CUdevResource *resource, CUdevResourceType type),
         (handle, resource, type)) {
    ContextPtr context = find_context(handle);
    if (CUresult status = context_status(context.get()))
        return status;
    GreenPtr green = green_of(context);
    return write_resource(green ? green->parts : whole(*context->device), type, resource);
}

SOFT_API(cuDevSmResourceSplitByCount,
         (CUdevResource * result, unsigned *groups, const CUdevResource *given,
          CUdevResource *remainder, unsigned flags, unsigned least),
         (result, groups, given, remainder, flags, least)) {
    if (!groups || !given || (flags & ~split_flags))
        return CUDA_ERROR_INVALID_VALUE;
    const Resource input = *reinterpret_cast<const Resource *>(given);
    if (!input.has_processors())
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    const Processors &all = input.processors;
    // A part cannot be split again. The resource of a green context can, even if it was a part.
    if (least > all.count || input.is_part)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned step = flags & ignore_pairs ? 1 : pair;
    unsigned size = std::max((least + step - 1) / step, 1u) * step;
    unsigned possible = all.count / size;
    if (!result) {
        *groups = possible;
        return CUDA_SUCCESS;
    }
    *groups = std::min(*groups, possible);
    if (!*groups)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    Processors group = all;
    group.count = size;
    write_groups(input, std::vector<Processors>(*groups, group),
                 reinterpret_cast<Resource *>(result), reinterpret_cast<Resource *>(remainder));
    return CUDA_SUCCESS;
}

SOFT_API(cuDevSmResourceSplit,
         (CUdevResource * result, unsigned count, const CUdevResource *given,
          CUdevResource *remainder, unsigned flags, CU_DEV_SM_RESOURCE_GROUP_PARAMS *wanted),
         (result, count, given, remainder, flags, wanted)) {
    auto params = reinterpret_cast<GroupParams *>(wanted);
    if (!count || !given || !params || flags)
        return CUDA_ERROR_INVALID_VALUE;
    const Resource input = *reinterpret_cast<const Resource *>(given);
    if (!input.has_processors())
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (input.is_part && !input.is_rest) // remainders can be split again
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    std::vector<Processors> groups;
    if (CUresult status = place_groups(input.processors, params, count, result != nullptr, groups))
        return status;
    for (unsigned i = 0; i < count; i++)
        params[i].count = groups[i].count;
    if (result)
        write_groups(input, groups, reinterpret_cast<Resource *>(result),
                     reinterpret_cast<Resource *>(remainder));
    return CUDA_SUCCESS;
}

SOFT_API(cuDevResourceGenerateDesc,
         (CUdevResourceDesc * description, CUdevResource *given, unsigned count),
         (description, given, count)) {
    if (!description || !given || !count)
        return CUDA_ERROR_INVALID_VALUE;
    Parts total;
    if (CUresult status = add_up(reinterpret_cast<const Resource *>(given), count, total))
        return status;
    Descriptions &all = descriptions();
    uintptr_t &handle =
        all.handles[{total.device, total.processors, total.queues.limit, total.queues.scope}];
    if (!handle) {
        handle = all.next++;
        all.parts[handle] = total;
    }
    *description = reinterpret_cast<CUdevResourceDesc>(handle);
    return CUDA_SUCCESS;
}

} // namespace soft
