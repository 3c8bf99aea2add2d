#include "memory/array.h"
#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"
#include "device/device_attributes.h"
#include "memory/device_memory.h"

// This file implements cuArray*, which create, describe and destroy arrays.

namespace soft {
namespace {

constexpr unsigned known_flags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                 CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
// Flags of the driver API that this driver does not implement.
constexpr unsigned other_flags = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
constexpr size_t faces_of_cube = 6;

size_t channel_bytes(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

// Formats of the driver API that this driver does not implement: 10 bits for a channel, compressed
// formats, video formats. Older headers lack some of them.
bool is_other_format(CUarray_format format) {
    unsigned number = static_cast<unsigned>(format);
    return number == 0x50 || (number >= 0x91 && number <= 0xb5);
}

// The attributes of a device that limit the extents of arrays of a kind: width, height, and depth
// or layers. 0 stands for an extent that such arrays do not have.
struct Limits3 {
    int texture[3], surface[3];
};
#define SOFT_LIMIT(name) CU_DEVICE_ATTRIBUTE_MAXIMUM_##name
constexpr Limits3 limits_1d = {{SOFT_LIMIT(TEXTURE1D_WIDTH), 0, 0},
                               {SOFT_LIMIT(SURFACE1D_WIDTH), 0, 0}};
constexpr Limits3 limits_2d = {{SOFT_LIMIT(TEXTURE2D_WIDTH), SOFT_LIMIT(TEXTURE2D_HEIGHT), 0},
                               {SOFT_LIMIT(SURFACE2D_WIDTH), SOFT_LIMIT(SURFACE2D_HEIGHT), 0}};
constexpr Limits3 limits_gather = {
    {SOFT_LIMIT(TEXTURE2D_GATHER_WIDTH), SOFT_LIMIT(TEXTURE2D_GATHER_HEIGHT), 0},
    {SOFT_LIMIT(SURFACE2D_WIDTH), SOFT_LIMIT(SURFACE2D_HEIGHT), 0}};
constexpr Limits3 limits_3d = {
    {SOFT_LIMIT(TEXTURE3D_WIDTH), SOFT_LIMIT(TEXTURE3D_HEIGHT), SOFT_LIMIT(TEXTURE3D_DEPTH)},
    {SOFT_LIMIT(SURFACE3D_WIDTH), SOFT_LIMIT(SURFACE3D_HEIGHT), SOFT_LIMIT(SURFACE3D_DEPTH)}};
// The alternative limits of 3-D textures: larger depths, with smaller widths and heights. Surfaces
// have no alternative limits.
constexpr Limits3 limits_deep = {
    {SOFT_LIMIT(TEXTURE3D_WIDTH_ALTERNATE), SOFT_LIMIT(TEXTURE3D_HEIGHT_ALTERNATE),
     SOFT_LIMIT(TEXTURE3D_DEPTH_ALTERNATE)},
    {SOFT_LIMIT(SURFACE3D_WIDTH), SOFT_LIMIT(SURFACE3D_HEIGHT), SOFT_LIMIT(SURFACE3D_DEPTH)}};
constexpr Limits3 limits_1d_layered = {
    {SOFT_LIMIT(TEXTURE1D_LAYERED_WIDTH), 0, SOFT_LIMIT(TEXTURE1D_LAYERED_LAYERS)},
    {SOFT_LIMIT(SURFACE1D_LAYERED_WIDTH), 0, SOFT_LIMIT(SURFACE1D_LAYERED_LAYERS)}};
constexpr Limits3 limits_2d_layered = {
    {SOFT_LIMIT(TEXTURE2D_LAYERED_WIDTH), SOFT_LIMIT(TEXTURE2D_LAYERED_HEIGHT),
     SOFT_LIMIT(TEXTURE2D_LAYERED_LAYERS)},
    {SOFT_LIMIT(SURFACE2D_LAYERED_WIDTH), SOFT_LIMIT(SURFACE2D_LAYERED_HEIGHT),
     SOFT_LIMIT(SURFACE2D_LAYERED_LAYERS)}};
// The depth of a cube is 6, so only the layers of several cubes have a limit.
constexpr Limits3 limits_cubes = {
    {SOFT_LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH), SOFT_LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH),
     SOFT_LIMIT(TEXTURECUBEMAP_LAYERED_LAYERS)},
    {SOFT_LIMIT(SURFACECUBEMAP_LAYERED_WIDTH), SOFT_LIMIT(SURFACECUBEMAP_LAYERED_WIDTH),
     SOFT_LIMIT(SURFACECUBEMAP_LAYERED_LAYERS)}};
constexpr Limits3 limits_cube = {
    {SOFT_LIMIT(TEXTURECUBEMAP_WIDTH), SOFT_LIMIT(TEXTURECUBEMAP_WIDTH),
     SOFT_LIMIT(TEXTURECUBEMAP_LAYERED_LAYERS)},
    {SOFT_LIMIT(SURFACECUBEMAP_WIDTH), SOFT_LIMIT(SURFACECUBEMAP_WIDTH),
     SOFT_LIMIT(SURFACECUBEMAP_LAYERED_LAYERS)}};
#undef SOFT_LIMIT

const Limits3 &limits_of(const CUDA_ARRAY3D_DESCRIPTOR_v2 &descriptor) {
    bool layered = descriptor.Flags & CUDA_ARRAY3D_LAYERED;
    if (descriptor.Flags & CUDA_ARRAY3D_CUBEMAP)
        return layered ? limits_cubes : limits_cube;
    if (layered)
        return descriptor.Height ? limits_2d_layered : limits_1d_layered;
    if (descriptor.Depth)
        return limits_3d;
    if (descriptor.Flags & CUDA_ARRAY3D_TEXTURE_GATHER)
        return limits_gather;
    return descriptor.Height ? limits_2d : limits_1d;
}

bool within(const Device &device, const CUDA_ARRAY3D_DESCRIPTOR_v2 &descriptor,
            const Limits3 &limits) {
    const size_t extents[3] = {descriptor.Width, descriptor.Height, descriptor.Depth};
    bool surface = descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST;
    for (int i = 0; i < 3; i++) {
        int attribute = surface ? limits.surface[i] : limits.texture[i];
        if (extents[i] > (attribute ? size_t(read_attribute(device, attribute)) : 0))
            return false;
    }
    return true;
}

// Returns whether some kind of array can have these extents.
bool has_shape(const CUDA_ARRAY3D_DESCRIPTOR_v2 &descriptor) {
    bool layered = descriptor.Flags & CUDA_ARRAY3D_LAYERED;
    if (!descriptor.Width || (layered && !descriptor.Depth))
        return false;
    bool gather = descriptor.Flags & CUDA_ARRAY3D_TEXTURE_GATHER;
    if (descriptor.Flags & CUDA_ARRAY3D_CUBEMAP) {
        bool cubes =
            layered ? descriptor.Depth % faces_of_cube == 0 : descriptor.Depth == faces_of_cube;
        return cubes && descriptor.Width == descriptor.Height && !gather;
    }
    bool flat = descriptor.Height && !descriptor.Depth;
    if (gather && !flat)
        return false;
    return descriptor.Height || !descriptor.Depth || layered;
}

std::string in_hex(unsigned number) {
    char text[12];
    std::snprintf(text, sizeof text, "0x%x", number);
    return text;
}

} // namespace

bool read_fractions(CUarray_format format, FractionFormat &fractions) {
    // The formats are numbered in this order: UNORM, then SNORM; within each, 8, then 16 bits;
    // within each of these, 1, 2 and 4 channels.
    unsigned place = static_cast<unsigned>(format) - CU_AD_FORMAT_UNORM_INT8X1;
    fractions = {1u << place % 3, size_t(1 + place / 3 % 2), place >= 6};
    return place < 12;
}

size_t element_bytes(CUarray_format format, unsigned channels) {
    if (FractionFormat fractions; read_fractions(format, fractions))
        return fractions.channels == channels ? fractions.bytes * channels : 0;
    bool known = channels == 1 || channels == 2 || channels == 4;
    return known ? channel_bytes(format) * channels : 0;
}

ArrayPtr find_array(CUarray handle) {
    return state().arrays.find(reinterpret_cast<uintptr_t>(handle));
}

CUresult missing_array(CUarray handle) {
    bool destroyed = state().arrays.was_erased(reinterpret_cast<uintptr_t>(handle));
    return destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

Allocation *find_array_memory(uintptr_t begin, size_t bytes) {
    Allocation *found = find_reserved(begin, bytes);
    return found && found->kind == MemoryKind::Array ? found : nullptr;
}

CUresult describe_array(const Context &context, const CUDA_ARRAY3D_DESCRIPTOR_v2 &descriptor,
                        Array &array) {
    if (descriptor.Flags & ~(known_flags | other_flags))
        return CUDA_ERROR_INVALID_VALUE;
    if (descriptor.Flags & other_flags)
        return not_supported("arrays with the flags " + in_hex(descriptor.Flags & other_flags) +
                             ": sparse, or with memory that comes later");
    if (is_other_format(descriptor.Format))
        return not_supported("arrays of the format " + in_hex(unsigned(descriptor.Format)));
    array.owner = const_cast<Context *>(&context);
    array.descriptor = descriptor;
    array.element = element_bytes(descriptor.Format, descriptor.NumChannels);
    if (!array.element || !has_shape(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    const Device &device = *context.device;
    const Limits3 &limits = limits_of(descriptor);
    bool fits = within(device, descriptor, limits) ||
                (&limits == &limits_3d && within(device, descriptor, limits_deep));
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult allocate_array(Call &call, size_t bytes, uintptr_t &address) {
    Allocation *memory = nullptr;
    CUresult status = allocate_or_wait(call, bytes, MemoryKind::Array, memory);
    if (status == CUDA_SUCCESS)
        address = memory->begin;
    return status;
}

ArrayPtr enter_array(const Array &array) {
    auto entered = std::make_shared<Array>(array);
    entered->handle = reinterpret_cast<CUarray>(state().arrays.insert(entered, state().reuse()));
    return entered;
}

SOFT_API(cuArray3DCreate_v2, (CUarray * handle, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor),
         (handle, descriptor)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!handle || !descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    Array array;
    if (CUresult status = describe_array(*call.context, *descriptor, array))
        return status;
    if (CUresult status = allocate_array(call, array.bytes(), array.address))
        return status;
    *handle = enter_array(array)->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuArrayCreate_v2, (CUarray * handle, const CUDA_ARRAY_DESCRIPTOR_v2 *descriptor),
         (handle, descriptor)) {
    if (!descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR_v2 flat = {};
    flat.Width = descriptor->Width;
    flat.Height = descriptor->Height;
    flat.Format = descriptor->Format;
    flat.NumChannels = descriptor->NumChannels;
    return cuArray3DCreate_v2_body(call, handle, &flat);
}

SOFT_API(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR_v2 * descriptor, CUarray handle),
         (descriptor, handle)) {
    ArrayPtr array = find_array(handle);
    if (!array)
        return missing_array(handle);
    if (!descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    *descriptor = array->descriptor;
    return CUDA_SUCCESS;
}

SOFT_API(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR_v2 * descriptor, CUarray handle),
         (descriptor, handle)) {
    ArrayPtr array = find_array(handle);
    if (!array)
        return missing_array(handle);
    if (!descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    *descriptor = {array->descriptor.Width, array->descriptor.Height, array->descriptor.Format,
                   array->descriptor.NumChannels};
    return CUDA_SUCCESS;
}

SOFT_API(cuArrayDestroy, (CUarray handle), (handle)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    ArrayPtr array = find_array(handle);
    if (!array)
        return missing_array(handle);
    if (array->mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult status = free_device_memory(call, array->address))
        return status;
    state().arrays.erase(reinterpret_cast<uintptr_t>(handle));
    return CUDA_SUCCESS;
}

// The functions below are about arrays with several planes, sparse arrays, and arrays that get
// their memory later. This driver creates none of these.
static CUresult refuse_array(CUarray handle) {
    return find_array(handle) ? CUDA_ERROR_INVALID_VALUE : missing_array(handle);
}

SOFT_API(cuArrayGetPlane,
         ([[maybe_unused]] CUarray * plane, CUarray handle, [[maybe_unused]] unsigned index),
         (plane, handle, index)) {
    return refuse_array(handle);
}

SOFT_API(cuArrayGetSparseProperties,
         ([[maybe_unused]] CUDA_ARRAY_SPARSE_PROPERTIES * properties, CUarray handle),
         (properties, handle)) {
    return handle ? refuse_array(handle) : CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuArrayGetMemoryRequirements,
         ([[maybe_unused]] CUDA_ARRAY_MEMORY_REQUIREMENTS * requirements, CUarray handle,
          CUdevice ordinal),
         (requirements, handle, ordinal)) {
    return handle && find_device(ordinal) ? refuse_array(handle) : CUDA_ERROR_INVALID_VALUE;
}

[[gnu::constructor]] static void add_arrays() {
    add_context_end(ContextEnd::Arrays, [](const Context &context) {
        erase_owned(state().arrays, context);
        erase_owned(state().mipmaps, context);
    });
}

} // namespace soft
