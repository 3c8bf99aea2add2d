#include "api/call.h"
#include "api/state.h"

#include <algorithm>

// How much memory the graphs of a device use. All of it counts as reserved from the time when its
// node is added until its graph ends.

namespace soft {
namespace {

struct GraphBytes {
    uint64_t used = 0, reserved = 0;
};

GraphBytes graph_bytes(const Device &device) {
    GraphBytes bytes;
    for (const auto &entry : state().allocations) {
        const Allocation &allocation = entry.second;
        if (allocation.device != &device || allocation.graph.expired())
            continue;
        bytes.reserved += allocation.bytes;
        bytes.used += allocation.captured ? 0 : allocation.bytes;
    }
    return bytes;
}

} // namespace

void note_graph_memory(Device &device) {
    GraphBytes bytes = graph_bytes(device);
    device.graph_used_high = std::max(device.graph_used_high, bytes.used);
    device.graph_reserved_high = std::max(device.graph_reserved_high, bytes.reserved);
}

// There is nothing to trim: the memory of a graph is freed when the graph ends.
SOFT_API(cuDeviceGraphMemTrim, (CUdevice number), (number)) {
    return find_device(number) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SOFT_API(cuDeviceGetGraphMemAttribute,
         (CUdevice number, CUgraphMem_attribute attribute, void *value),
         (number, attribute, value)) {
    Device *device = find_device(number);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    GraphBytes bytes = graph_bytes(*device);
    auto *result = static_cast<cuuint64_t *>(value);
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *result = bytes.used;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *result = device->graph_used_high;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *result = bytes.reserved;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *result = device->graph_reserved_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SOFT_API(cuDeviceSetGraphMemAttribute,
         (CUdevice number, CUgraphMem_attribute attribute, void *value),
         (number, attribute, value)) {
    Device *device = find_device(number);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    // High marks can only be reset to zero.
    if (!value || *static_cast<const cuuint64_t *>(value))
        return CUDA_ERROR_INVALID_VALUE;
    GraphBytes bytes = graph_bytes(*device);
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        device->graph_used_high = bytes.used;
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        device->graph_reserved_high = bytes.reserved;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

} // namespace soft
