#include "api/call.h"
#include "api/state.h"
#include "base/range.h"
#include "device/device_attributes.h"
#include "memory/array.h"
#include "memory/device_memory.h"

#include <algorithm>

// This file implements cuMipmappedArray*. The levels of a mipmapped array are arrays, which lie one
// after the other in the same memory.

namespace soft {
namespace {

constexpr size_t level_alignment = 512;

// Returns the description of a level, given the description of the first level.
CUDA_ARRAY3D_DESCRIPTOR_v2 level_of(CUDA_ARRAY3D_DESCRIPTOR_v2 descriptor, unsigned level) {
    auto halve = [&](size_t &extent) {
        if (extent)
            extent = std::max<size_t>(1, extent >> level);
    };
    halve(descriptor.Width);
    halve(descriptor.Height);
    if (!(descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
        halve(descriptor.Depth);
    return descriptor;
}

// Returns the greatest number of levels: the last level has a single element (in each layer).
unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR_v2 &descriptor) {
    size_t largest = std::max(descriptor.Width, descriptor.Height);
    if (!(descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
        largest = std::max(largest, descriptor.Depth);
    unsigned levels = 1;
    while (largest >>= 1)
        levels++;
    return levels;
}

// Checks the limits of 1-D and 2-D mipmapped arrays, which are lower than those of arrays. Other
// mipmapped arrays have no separate limits.
bool within_limits(const Device &device, const CUDA_ARRAY3D_DESCRIPTOR_v2 &descriptor) {
    if (descriptor.Depth)
        return true;
    auto limit = [&](int attribute) { return size_t(read_attribute(device, attribute)); };
    if (!descriptor.Height)
        return descriptor.Width <= limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH);
    return descriptor.Width <= limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH) &&
           descriptor.Height <= limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT);
}

CUresult refuse_mipmap(CUmipmappedArray handle) {
    return find_mipmap(handle) ? CUDA_ERROR_INVALID_VALUE : missing_mipmap(handle);
}

} // namespace

MipmapPtr find_mipmap(CUmipmappedArray handle) {
    return state().mipmaps.find(reinterpret_cast<uintptr_t>(handle));
}

CUresult missing_mipmap(CUmipmappedArray handle) {
    bool destroyed = state().mipmaps.was_erased(reinterpret_cast<uintptr_t>(handle));
    return destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

SOFT_API(cuMipmappedArrayCreate,
         (CUmipmappedArray * handle, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor, unsigned count),
         (handle, descriptor, count)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!handle || !descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    Array first;
    if (CUresult status = describe_array(*call.context, *descriptor, first))
        return status;
    if (!within_limits(*call.context->device, *descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    count = std::max(1u, std::min(count, most_levels(*descriptor)));
    auto mipmap = std::make_shared<Mipmap>();
    mipmap->owner = first.owner;
    size_t bytes = 0;
    std::vector<Array> levels;
    for (unsigned i = 0; i < count; i++) {
        Array level = first;
        level.descriptor = level_of(*descriptor, i);
        level.address = bytes;
        bytes = round_up(bytes + level.bytes(), level_alignment);
        levels.push_back(level);
    }
    if (CUresult status = allocate_array(call, bytes, mipmap->address))
        return status;
    mipmap->handle =
        reinterpret_cast<CUmipmappedArray>(state().mipmaps.insert(mipmap, state().reuse()));
    for (Array &level : levels) {
        level.address += mipmap->address;
        level.mipmap = mipmap->handle;
        mipmap->levels.push_back(enter_array(level));
    }
    *handle = mipmap->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuMipmappedArrayGetLevel, (CUarray * array, CUmipmappedArray handle, unsigned level),
         (array, handle, level)) {
    MipmapPtr mipmap = find_mipmap(handle);
    if (!mipmap)
        return missing_mipmap(handle);
    if (!array || level >= mipmap->levels.size())
        return CUDA_ERROR_INVALID_VALUE;
    *array = mipmap->levels[level]->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuMipmappedArrayDestroy, (CUmipmappedArray handle), (handle)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    MipmapPtr mipmap = find_mipmap(handle);
    if (!mipmap)
        return missing_mipmap(handle);
    if (CUresult status = free_device_memory(call, mipmap->address))
        return status;
    for (const ArrayPtr &level : mipmap->levels)
        state().arrays.erase(reinterpret_cast<uintptr_t>(level->handle));
    state().mipmaps.erase(reinterpret_cast<uintptr_t>(handle));
    return CUDA_SUCCESS;
}

// No mipmapped array here is sparse, or gets its memory later.
SOFT_API(cuMipmappedArrayGetSparseProperties,
         ([[maybe_unused]] CUDA_ARRAY_SPARSE_PROPERTIES * properties, CUmipmappedArray handle),
         (properties, handle)) {
    return refuse_mipmap(handle);
}

SOFT_API(cuMipmappedArrayGetMemoryRequirements,
         ([[maybe_unused]] CUDA_ARRAY_MEMORY_REQUIREMENTS * requirements, CUmipmappedArray handle,
          CUdevice ordinal),
         (requirements, handle, ordinal)) {
    return handle && find_device(ordinal) ? refuse_mipmap(handle) : CUDA_ERROR_INVALID_VALUE;
}

} // namespace soft
