#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"
#include "device/device_attributes.h"
#include "texture/objects.h"

#include <algorithm>
#include <cmath>
#include <cstring>

// This file implements cuTexObject*.

namespace soft {
namespace {

using ptx::Channel;
using ptx::Texture;

// The last uncompressed CUresourceViewFormat, and the last of all.
constexpr int last_plain_view = 0x18, last_view = 0x22;

size_t limit(const Context &context, int attribute) {
    return size_t(read_attribute(*context.device, attribute));
}

// Returns whether the context can read this memory.
bool can_read(const Context &context, CUdeviceptr address, size_t bytes) {
    const Allocation *memory = find_range(address, bytes);
    return memory && !memory->captured && reaches(context, *memory, address, bytes, false);
}

CUresult read_linear(const Context &context, const CUDA_RESOURCE_DESC &resource, Texture &texture) {
    const auto &linear = resource.res.linear;
    if (!read_format(linear.format, linear.numChannels, texture))
        return CUDA_ERROR_INVALID_VALUE;
    size_t count = linear.sizeInBytes / texture.element;
    if (!count || count > limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH) ||
        linear.devPtr % texture_alignment || !can_read(context, linear.devPtr, linear.sizeInBytes))
        return CUDA_ERROR_INVALID_VALUE;
    texture.shape = Texture::Shape::Linear;
    texture.levels.emplace_back();
    texture.levels[0].address = linear.devPtr;
    texture.levels[0].width = uint32_t(count);
    return CUDA_SUCCESS;
}

CUresult read_pitched(const Context &context, const CUDA_RESOURCE_DESC &resource,
                      Texture &texture) {
    const auto &plane = resource.res.pitch2D;
    if (!read_format(plane.format, plane.numChannels, texture) || !plane.width || !plane.height)
        return CUDA_ERROR_INVALID_VALUE;
    if (plane.width > limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) ||
        plane.height > limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) ||
        plane.pitchInBytes > limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH) ||
        plane.pitchInBytes % limit(context, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT))
        return CUDA_ERROR_INVALID_VALUE;
    size_t row = plane.width * texture.element;
    size_t bytes = (plane.height - 1) * plane.pitchInBytes + row;
    if (plane.pitchInBytes < row || plane.devPtr % texture_alignment ||
        !can_read(context, plane.devPtr, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    texture.shape = Texture::Shape::Plane;
    texture.levels.emplace_back();
    ptx::Texels &texels = texture.levels[0];
    texels.address = plane.devPtr;
    texels.pitch = plane.pitchInBytes;
    texels.width = uint32_t(plane.width);
    texels.height = uint32_t(plane.height);
    return CUDA_SUCCESS;
}

CUresult read_mipmap(const Context &context, const CUDA_RESOURCE_DESC &resource, Texture &texture) {
    MipmapPtr mipmap = find_mipmap(resource.res.mipmap.hMipmappedArray);
    if (!mipmap || mipmap->owner != &context)
        return CUDA_ERROR_INVALID_VALUE;
    for (const ArrayPtr &level : mipmap->levels)
        if (CUresult status = read_array(*level, texture))
            return status;
    return CUDA_SUCCESS;
}

CUresult read_resource(const Context &context, const CUDA_RESOURCE_DESC &resource,
                       Texture &texture) {
    if (resource.flags)
        return CUDA_ERROR_INVALID_VALUE;
    switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
        ArrayPtr array;
        CUresult status = find_resource(context, resource.res.array.hArray, array);
        return status ? status : read_array(*array, texture);
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return read_mipmap(context, resource, texture);
    case CU_RESOURCE_TYPE_LINEAR:
        return read_linear(context, resource, texture);
    case CU_RESOURCE_TYPE_PITCH2D:
        return read_pitched(context, resource, texture);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

// Applies the format of a view, whose elements must have the size of the resource's elements.
CUresult apply_format(int format, Texture &texture) {
    static constexpr Channel channels[] = {Channel::U8,  Channel::S8,  Channel::U16, Channel::S16,
                                           Channel::U32, Channel::S32, Channel::F16, Channel::F32};
    if (format <= 0 || format > last_view)
        return CUDA_ERROR_INVALID_VALUE;
    if (format > last_plain_view)
        return not_supported("a view of a compressed format: " + std::to_string(format));
    texture.channel = channels[(format - 1) / 3];
    texture.channels = 1u << (format - 1) % 3;
    texture.fractions = false;
    bool same = bytes_of(texture.channel) * texture.channels == texture.element;
    return same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Restricts a texture to the levels and layers of a view.
CUresult apply_view(const CUDA_RESOURCE_VIEW_DESC &view, const Array &first, Texture &texture) {
    if (CUresult status = apply_format(static_cast<int>(view.format), texture))
        return status;
    const auto &whole = first.descriptor;
    using Shape = Texture::Shape;
    bool layered = texture.shape == Shape::Rows || texture.shape == Shape::Planes;
    for (unsigned word : view.reserved)
        if (word)
            return CUDA_ERROR_INVALID_VALUE;
    if (view.width != whole.Width || view.height != whole.Height || view.depth != whole.Depth ||
        view.firstMipmapLevel > view.lastMipmapLevel ||
        view.lastMipmapLevel >= texture.levels.size() || view.firstLayer > view.lastLayer ||
        view.lastLayer >= (layered ? texture.levels[0].depth : 1))
        return CUDA_ERROR_INVALID_VALUE;
    auto levels = texture.levels.begin();
    texture.levels = {levels + view.firstMipmapLevel, levels + view.lastMipmapLevel + 1};
    for (ptx::Texels &texels : texture.levels)
        if (layered) {
            texels.address += view.firstLayer * texels.slice;
            texels.depth = view.lastLayer - view.firstLayer + 1;
        }
    return CUDA_SUCCESS;
}

// Returns the array of a resource, or the first level of its mipmapped array. Returns null if the
// resource is memory.
ArrayPtr first_array(const CUDA_RESOURCE_DESC &resource) {
    if (resource.resType == CU_RESOURCE_TYPE_ARRAY)
        return find_array(resource.res.array.hArray);
    if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
        return find_mipmap(resource.res.mipmap.hMipmappedArray)->levels[0];
    return nullptr;
}

// Returns the number of coordinates, not counting the layer.
unsigned dimensions_of(Texture::Shape shape) {
    using Shape = Texture::Shape;
    return shape == Shape::Linear || shape == Shape::Row || shape == Shape::Rows ? 1
           : shape == Shape::Volume                                              ? 3
                                                                                 : 2;
}

bool is_mode(CUaddress_mode mode) {
    return mode >= CU_TR_ADDRESS_MODE_WRAP && mode <= CU_TR_ADDRESS_MODE_BORDER;
}

bool is_filter(CUfilter_mode mode) {
    return mode == CU_TR_FILTER_MODE_POINT || mode == CU_TR_FILTER_MODE_LINEAR;
}

CUresult check_reading(const CUDA_TEXTURE_DESC &reading, const Texture &texture) {
    if (reading.flags & ~known_texture_flags || !is_filter(reading.filterMode) ||
        !is_filter(reading.mipmapFilterMode))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < dimensions_of(texture.shape); i++)
        if (!is_mode(reading.addressMode[i]))
            return CUDA_ERROR_INVALID_VALUE;
    for (int word : reading.reserved)
        if (word)
            return CUDA_ERROR_INVALID_VALUE;
    bool cube = texture.shape == Texture::Shape::Cube || texture.shape == Texture::Shape::Cubes;
    if (reading.flags & CU_TRSF_SEAMLESS_CUBEMAP && !cube)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// Converts a channel of the border color to a channel of an element. If the texture promotes
// integers to floats, the color is clamped to the range from 0 (or -1) to 1, scaled to the integers
// and rounded, with halves toward zero. Other integers get the bits of the float.
uint32_t border_channel(const Texture &texture, unsigned channel, float color) {
    if (texture.promotes) {
        bool has_sign = texture.channel == Channel::S8 || texture.channel == Channel::S16;
        bool is_byte = bytes_of(texture.channel) == 1;
        double most = has_sign ? is_byte ? 127 : 32767 : is_byte ? 255 : 65535;
        double value = std::isnan(color) ? 0 : double(color);
        value = std::min(std::max(value, has_sign ? -1.0 : 0.0), 1.0);
        if (texture.srgb && channel < 3)
            value = value <= 0.0031308 ? 12.92 * value : 1.055 * std::pow(value, 1 / 2.4) - 0.055;
        double size = std::ceil(std::fabs(value * most) - 0.5);
        return uint32_t(int32_t(value < 0 ? -size : size));
    }
    if (texture.channel == Channel::F16)
        return ptx::stored_half(color);
    uint32_t bits;
    memcpy(&bits, &color, sizeof bits);
    return bits;
}

// Sets how a texture is read.
CUresult apply_reading(const CUDA_TEXTURE_DESC &reading, Texture &texture) {
    if (CUresult status = check_reading(reading, texture))
        return status;
    bool linear = texture.shape == Texture::Shape::Linear;
    texture.normalized = reading.flags & CU_TRSF_NORMALIZED_COORDINATES;
    texture.promotes = (texture.fractions || !(reading.flags & CU_TRSF_READ_AS_INTEGER)) &&
                       texture.channel < Channel::U32;
    texture.srgb =
        reading.flags & CU_TRSF_SRGB && texture.promotes && texture.channel == Channel::U8;
    texture.filters = reading.filterMode == CU_TR_FILTER_MODE_LINEAR;
    texture.mixes_levels = reading.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
    texture.bias = reading.mipmapLevelBias;
    texture.least_level = reading.minMipmapLevelClamp;
    texture.greatest_level = reading.maxMipmapLevelClamp;
    if (texture.filters && !linear && !texture.reads_floats())
        return CUDA_ERROR_INVALID_VALUE;
    bool seamless = reading.flags & CU_TRSF_SEAMLESS_CUBEMAP;
    if (seamless && texture.filters)
        return not_supported("the flag CU_TRSF_SEAMLESS_CUBEMAP with linear filtering");
    for (int i = 0; i < 3; i++) {
        auto outside = static_cast<ptx::Outside>(reading.addressMode[i]);
        if (!is_mode(reading.addressMode[i])) // the texture does not have this dimension
            outside = ptx::Outside::Clamp;
        bool repeats = outside == ptx::Outside::Wrap || outside == ptx::Outside::Mirror;
        if (seamless || (repeats && !texture.normalized))
            outside = ptx::Outside::Clamp;
        texture.outside[i] = outside;
    }
    for (unsigned i = 0; i < texture.channels; i++) {
        uint32_t raw = border_channel(texture, i, reading.borderColor[i]);
        memcpy(texture.border + i * bytes_of(texture.channel), &raw, bytes_of(texture.channel));
    }
    return CUDA_SUCCESS;
}

// Makes the texture that reads a plane of one row as a row, which real drivers allow.
std::shared_ptr<const Texture> row_of(const Texture &texture) {
    if (texture.shape != Texture::Shape::Plane || texture.levels[0].height != 1)
        return nullptr;
    auto row = std::make_shared<Texture>(texture);
    row->shape = Texture::Shape::Row;
    return row;
}

// Returns an object of the current context, or null.
TextureObjectPtr find_texture_object(const Call &call, CUtexObject handle) {
    TextureObjectPtr object = state().textures.find(handle);
    return object && object->owner == call.context.get() ? object : nullptr;
}

} // namespace

CUresult make_texture(const Context &context, const CUDA_RESOURCE_DESC &resource,
                      const CUDA_TEXTURE_DESC &reading, const CUDA_RESOURCE_VIEW_DESC *view,
                      Texture &texture) {
    if (CUresult status = read_resource(context, resource, texture))
        return status;
    if (view) {
        ArrayPtr array = first_array(resource);
        if (!array)
            return CUDA_ERROR_INVALID_VALUE;
        if (CUresult status = apply_view(*view, *array, texture))
            return status;
    }
    if (CUresult status = apply_reading(reading, texture))
        return status;
    bool mipmap = resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    if (mipmap && !texture.normalized)
        return CUDA_ERROR_INVALID_VALUE;
    if (resource.resType == CU_RESOURCE_TYPE_ARRAY)
        texture.row = row_of(texture);
    return CUDA_SUCCESS;
}

SOFT_API(cuTexObjectCreate,
         (CUtexObject * handle, const CUDA_RESOURCE_DESC *resource,
          const CUDA_TEXTURE_DESC *reading, const CUDA_RESOURCE_VIEW_DESC *view),
         (handle, resource, reading, view)) {
    if (!handle || !resource || !reading)
        return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_shared<TextureObject>();
    object->owner = call.context.get();
    object->resource = *resource;
    object->reading = *reading;
    if (view) {
        object->has_view = true;
        object->view = *view;
    }
    if (CUresult status = make_texture(*call.context, *resource, *reading, view, object->texture))
        return status;
    *handle = state().textures.insert(object, state().reuse());
    return CUDA_SUCCESS;
}

SOFT_API(cuTexObjectDestroy, (CUtexObject handle), (handle)) {
    if (!state().textures.find(handle)) // an object of another context is destroyed, too
        return CUDA_ERROR_INVALID_VALUE;
    state().textures.erase(handle);
    return CUDA_SUCCESS;
}

SOFT_API(cuTexObjectGetResourceDesc, (CUDA_RESOURCE_DESC * resource, CUtexObject handle),
         (resource, handle)) {
    TextureObjectPtr object = find_texture_object(call, handle);
    if (!object || !resource)
        return CUDA_ERROR_INVALID_VALUE;
    *resource = object->resource;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexObjectGetTextureDesc, (CUDA_TEXTURE_DESC * reading, CUtexObject handle),
         (reading, handle)) {
    TextureObjectPtr object = find_texture_object(call, handle);
    if (!object || !reading)
        return CUDA_ERROR_INVALID_VALUE;
    *reading = object->reading;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexObjectGetResourceViewDesc, (CUDA_RESOURCE_VIEW_DESC * view, CUtexObject handle),
         (view, handle)) {
    TextureObjectPtr object = find_texture_object(call, handle);
    if (!object || !view)
        return CUDA_ERROR_INVALID_VALUE;
    if (object->has_view) // without a view, nothing is written
        *view = object->view;
    return CUDA_SUCCESS;
}

} // namespace soft
