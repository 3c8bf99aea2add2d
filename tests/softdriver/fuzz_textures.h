#pragma once

#include "fuzz_scenes.h"
#include "fuzz_texture_code.h"

#include <optional>
#include <string>

// Arrays, textures and surfaces that fit each other, and kernels that use them.

namespace fuzz {

inline void put_array(CUarray array) { pool_of<CUarray>().put(reinterpret_cast<uintptr_t>(array)); }

// Memory for a texture. Not all of it is read.
inline CUdeviceptr texture_memory() {
    CUdeviceptr memory = 0;
    if (cuMemAlloc_v2(&memory, 4096))
        return 0;
    addresses.put(memory);
    return memory;
}

// Sets the view to the width, height and depth of the array, with a view format for the elements of
// the array. Levels and layers are random.
inline void fit_view(CUDA_RESOURCE_VIEW_DESC &view, const CUDA_ARRAY3D_DESCRIPTOR &array,
                     unsigned levels) {
    static const unsigned formats[] = {1, 2, 3, 8, 9, 10, 16, 32};
    view = {};
    for (unsigned i = 0; i < std::size(formats); i++)
        if (unsigned(array.Format) == formats[i])
            view.format = static_cast<CUresourceViewFormat>(
                1 + 3 * i + (array.NumChannels == 4 ? 2 : array.NumChannels - 1));
    view.width = array.Width;
    view.height = array.Height;
    view.depth = array.Depth;
    view.firstMipmapLevel = unsigned(player->random.below(levels));
    view.lastMipmapLevel = view.firstMipmapLevel + unsigned(player->random.below(2));
    bool layered = array.Flags & CUDA_ARRAY3D_LAYERED && !(array.Flags & CUDA_ARRAY3D_CUBEMAP);
    view.lastLayer = layered && array.Depth ? unsigned(player->random.below(array.Depth)) : 0;
    view.firstLayer = view.lastLayer && player->chance(50) ? 1 : 0;
}

// Returns the array, or the first level of the mipmapped array, of a resource.
inline std::optional<CUDA_ARRAY3D_DESCRIPTOR> array_of(const CUDA_RESOURCE_DESC &resource) {
    CUarray array = resource.res.array.hArray;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
        cuMipmappedArrayGetLevel(&array, resource.res.mipmap.hMipmappedArray, 0))
        return std::nullopt;
    if (resource.resType > CU_RESOURCE_TYPE_MIPMAPPED_ARRAY ||
        cuArray3DGetDescriptor_v2(&descriptor, array))
        return std::nullopt;
    return descriptor;
}

// Changes a texture descriptor so that it fits the resource.
inline void fit_reading(CUDA_TEXTURE_DESC &reading, const CUDA_RESOURCE_DESC &resource,
                        CUarray_format format) {
    if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
        reading.flags |= CU_TRSF_NORMALIZED_COORDINATES;
    bool integers = format == CU_AD_FORMAT_UNSIGNED_INT32 || format == CU_AD_FORMAT_SIGNED_INT32 ||
                    (reading.flags & CU_TRSF_READ_AS_INTEGER && format < CU_AD_FORMAT_HALF);
    if (integers)
        reading.filterMode = CU_TR_FILTER_MODE_POINT;
    if (player->chance(80))
        reading.maxMipmapLevelClamp = float(player->random.below(5));
}

// Creates a resource for textures, and sets the geometry of instructions that fit it. Returns false
// if the driver has refused it.
inline bool any_resource(CUDA_RESOURCE_DESC &resource, size_t &geometry, bool &integers) {
    geometry = player->random.below(TextureCode::texture_geometries);
    CUDA_ARRAY3D_DESCRIPTOR descriptor = any_shape(geometry);
    resource = {};
    integers = false;
    switch (player->random.below(6)) {
    case 0:
        resource.resType = CU_RESOURCE_TYPE_LINEAR;
        resource.res.linear.devPtr = texture_memory();
        resource.res.linear.format = descriptor.Format;
        resource.res.linear.numChannels = descriptor.NumChannels;
        resource.res.linear.sizeInBytes = 16 * (1 + player->random.below(256));
        geometry = 0;
        integers = true;
        return resource.res.linear.devPtr != 0;
    case 1:
        resource.resType = CU_RESOURCE_TYPE_PITCH2D;
        resource.res.pitch2D.devPtr = texture_memory();
        resource.res.pitch2D.format = descriptor.Format;
        resource.res.pitch2D.numChannels = descriptor.NumChannels;
        resource.res.pitch2D.width = descriptor.Width;
        resource.res.pitch2D.height = 1 + player->random.below(16);
        resource.res.pitch2D.pitchInBytes = 256;
        geometry = 1;
        return resource.res.pitch2D.devPtr != 0;
    case 2:
    case 3: {
        resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        CUmipmappedArray &made = resource.res.mipmap.hMipmappedArray;
        if (cuMipmappedArrayCreate(&made, &descriptor, 1 + unsigned(player->random.below(5))))
            return false;
        pool_of<CUmipmappedArray>().put(reinterpret_cast<uintptr_t>(made));
        return true;
    }
    default:
        resource.resType = CU_RESOURCE_TYPE_ARRAY;
        if (geometry == 1 && player->chance(30))
            descriptor.Flags |= CUDA_ARRAY3D_TEXTURE_GATHER;
        if (cuArray3DCreate_v2(&resource.res.array.hArray, &descriptor))
            return false;
        put_array(resource.res.array.hArray);
        return true;
    }
}

struct LookedAt {
    CUtexObject texture = 0;
    CUsurfObject surface = 0;
    CUDA_RESOURCE_DESC resource{};
    CUarray stored = nullptr;
    size_t geometry = 0, surface_geometry = 0;
    bool integers = false;
};

inline bool make_objects(LookedAt &made) {
    if (!any_resource(made.resource, made.geometry, made.integers))
        return false;
    CUDA_TEXTURE_DESC reading{};
    CUDA_RESOURCE_VIEW_DESC view;
    fill(reading);
    std::optional<CUDA_ARRAY3D_DESCRIPTOR> array = array_of(made.resource);
    fit_reading(reading, made.resource, array ? array->Format : made.resource.res.linear.format);
    if (array)
        fit_view(view, *array, 1);
    bool viewed = array && player->chance(30);
    if (cuTexObjectCreate(&made.texture, &made.resource, &reading, viewed ? &view : nullptr))
        return false;
    objects.put(made.texture);
    size_t shape = player->random.below(TextureCode::surface_geometries + 2);
    made.surface_geometry = std::min<size_t>(shape, 4); // the faces of cubes are layers
    CUDA_ARRAY3D_DESCRIPTOR descriptor = any_shape(shape);
    descriptor.Flags |= CUDA_ARRAY3D_SURFACE_LDST;
    if (player->chance(70))
        descriptor.Width = 16; // room for the largest items
    if (shape >= 5)
        descriptor.Height = descriptor.Width;
    if (cuArray3DCreate_v2(&made.stored, &descriptor))
        return false;
    put_array(made.stored);
    CUDA_RESOURCE_DESC resource{};
    resource.res.array.hArray = made.stored;
    if (cuSurfObjectCreate(&made.surface, &resource))
        return false;
    objects.put(made.surface);
    return true;
}

// Destroys one of the objects that a kernel may still use.
inline void destroy_one(const LookedAt &made) {
    switch (player->random.below(5)) {
    case 0:
        cuTexObjectDestroy(made.texture);
        break;
    case 1:
        cuSurfObjectDestroy(made.surface);
        break;
    case 2:
        cuArrayDestroy(made.stored);
        break;
    default:
        if (made.resource.resType == CU_RESOURCE_TYPE_ARRAY)
            cuArrayDestroy(made.resource.res.array.hArray);
        else if (made.resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
            cuMipmappedArrayDestroy(made.resource.res.mipmap.hMipmappedArray);
        else
            cuMemFree_v2(made.resource.res.linear.devPtr);
    }
}

inline std::string any_look(const LookedAt &made) {
    TextureCode code([](uint64_t limit) { return player->random.below(limit); });
    code.integers = made.integers;
    std::string body;
    for (uint64_t count = 1 + player->random.below(8); count > 0; count--)
        body += player->chance(60) ? code.texture_instruction(made.geometry)
                                   : code.surface_instruction(made.surface_geometry);
    return TextureCode::kernel(body);
}

// How many kernels that use textures and surfaces were launched and waited for, and how many of
// them ended without an error.
inline std::atomic<uint64_t> looks{0}, good_looks{0};

// Makes a texture and a surface, and launches a kernel that uses them. One of the objects may be
// destroyed before the kernel runs.
inline void look() {
    LookedAt made;
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    CUstream stream = nullptr;
    if (!make_objects(made) || cuModuleLoadData(&module, any_look(made).c_str()) ||
        cuModuleGetFunction(&kernel, module, "look") ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
        return;
    pool_of<CUmodule>().put(reinterpret_cast<uintptr_t>(module));
    pool_of<CUfunction>().put(reinterpret_cast<uintptr_t>(kernel));
    pool_of<CUstream>().put(reinterpret_cast<uintptr_t>(stream));
    float x = any_float();
    int i = int(player->random.below(40)) - 10;
    void *arguments[] = {&made.texture, &made.surface, &x, &i};
    // Many blocks run in several threads of the driver.
    unsigned blocks = player->chance(10) ? 150 : 1 + unsigned(player->random.below(3));
    cuLaunchKernel(kernel, blocks, 1, 1, 8, 1, 1, 0, stream, arguments, nullptr);
    if (player->chance(5))
        destroy_one(made);
    if (!player->chance(70))
        return;
    looks++;
    good_looks += cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

} // namespace fuzz
