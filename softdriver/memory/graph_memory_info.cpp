#include "api/call.h"
#include "api/state.h"

#include <algorithm>

// The amount of memory that a device holds for memory nodes of graphs. As on real drivers, a launch
// that allocates memory raises the amount, in steps. Freeing the memory or destroying the graph
// does not lower it; only cuDeviceGraphMemTrim does. All of this memory is reported as used. The
// amount is only a number that programs can query: the capacity that an allocation takes is counted
// elsewhere.

namespace soft {
namespace {

constexpr uint64_t step = uint64_t(32) << 20;

// The memory of graphs that is allocated now, rounded up to whole steps.
uint64_t allocated(const Device &device) {
    uint64_t bytes = 0;
    for (const auto &entry : state().allocations) {
        const Allocation &allocation = entry.second;
        if (allocation.device == &device && allocation.of_graph && !allocation.captured)
            bytes += allocation.bytes;
    }
    return (bytes + step - 1) / step * step;
}

} // namespace

void note_graph_memory(Device &device) {
    device.graph_memory = std::max(device.graph_memory, allocated(device));
    device.graph_memory_high = std::max(device.graph_memory_high, device.graph_memory);
}

SOFT_API(cuDeviceGraphMemTrim, (CUdevice number), (number)) {
    Device *device = find_device(number);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    device->graph_memory = allocated(*device);
    return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetGraphMemAttribute,
         (CUdevice number, CUgraphMem_attribute attribute, void *value),
         (number, attribute, value)) {
    Device *device = find_device(number);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    auto *result = static_cast<cuuint64_t *>(value);
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *result = device->graph_memory;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *result = device->graph_memory_high;
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
    bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if (!value || *static_cast<const cuuint64_t *>(value) || !high)
        return CUDA_ERROR_INVALID_VALUE;
    device->graph_memory_high = device->graph_memory;
    return CUDA_SUCCESS;
}

} // namespace soft
