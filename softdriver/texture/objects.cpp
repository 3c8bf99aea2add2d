#include "texture/objects.h"

#include "api/call.h"
#include "api/state.h"

// Functions for both texture objects and surface objects.

namespace soft {
namespace {

// Return the name of the function that destroys objects of a kind, and the name of the kind.
const char *destroyer(bool surface) {
    return surface ? "cuSurfObjectDestroy" : "cuTexObjectDestroy";
}
const char *name_of(bool surface) { return surface ? "surface object" : "texture object"; }

ptx::Texture::Shape shape_of(const CUDA_ARRAY3D_DESCRIPTOR_v2 &descriptor) {
    using Shape = ptx::Texture::Shape;
    bool layered = descriptor.Flags & CUDA_ARRAY3D_LAYERED;
    if (descriptor.Flags & CUDA_ARRAY3D_CUBEMAP)
        return layered ? Shape::Cubes : Shape::Cube;
    if (layered)
        return descriptor.Height ? Shape::Planes : Shape::Rows;
    return descriptor.Depth ? Shape::Volume : descriptor.Height ? Shape::Plane : Shape::Row;
}

ptx::Texels texels_of(const Array &array) {
    ptx::Texels texels;
    texels.address = array.address;
    texels.pitch = array.row_bytes();
    texels.slice = array.slice_bytes();
    texels.width = uint32_t(array.descriptor.Width);
    texels.height = uint32_t(array.rows());
    texels.depth = uint32_t(array.slices());
    return texels;
}

} // namespace

bool read_format(CUarray_format format, unsigned channels, ptx::Texture &texture) {
    using ptx::Channel;
    static constexpr struct {
        CUarray_format format;
        Channel channel;
    } formats[] = {
        {CU_AD_FORMAT_UNSIGNED_INT8, Channel::U8},   {CU_AD_FORMAT_SIGNED_INT8, Channel::S8},
        {CU_AD_FORMAT_UNSIGNED_INT16, Channel::U16}, {CU_AD_FORMAT_SIGNED_INT16, Channel::S16},
        {CU_AD_FORMAT_UNSIGNED_INT32, Channel::U32}, {CU_AD_FORMAT_SIGNED_INT32, Channel::S32},
        {CU_AD_FORMAT_HALF, Channel::F16},           {CU_AD_FORMAT_FLOAT, Channel::F32},
    };
    texture.element = element_bytes(format, channels);
    texture.channels = channels;
    for (const auto &known : formats)
        if (known.format == format)
            texture.channel = known.channel;
    FractionFormat fractions;
    texture.fractions = read_fractions(format, fractions);
    if (texture.fractions)
        texture.channel = fractions.bytes == 1 ? fractions.sign ? Channel::S8 : Channel::U8
                          : fractions.sign     ? Channel::S16
                                               : Channel::U16;
    return texture.element > 0;
}

CUresult find_resource(const Context &context, CUarray handle, ArrayPtr &array) {
    array = find_array(handle);
    if (!array)
        return CUDA_ERROR_INVALID_VALUE;
    return array->owner == &context ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUresult read_array(const Array &array, ptx::Texture &texture) {
    texture.shape = shape_of(array.descriptor);
    texture.levels.push_back(texels_of(array));
    bool known = read_format(array.descriptor.Format, array.descriptor.NumChannels, texture);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

std::shared_ptr<const ptx::Texture> texture_of(const Context &context, uint64_t handle,
                                               bool surface, std::string &why) {
    State &driver = state();
    const auto &table = surface ? driver.surfaces : driver.textures;
    TextureObjectPtr object = table.find(handle);
    if (object && object->owner == &context)
        return {object, &object->texture};
    why = address_text(handle) + " is no " + name_of(surface);
    if (object)
        why = address_text(handle) + " is a " + name_of(surface) + " of another context";
    else if (table.was_erased(handle))
        why += " any more: " + std::string(destroyer(surface)) + " destroyed it";
    else if ((surface ? driver.textures : driver.surfaces).find(handle))
        why += ", but a " + std::string(name_of(!surface));
    return nullptr;
}

[[gnu::constructor]] static void add_objects() {
    add_context_end(ContextEnd::Textures, [](const Context &context) {
        erase_owned(state().textures, context);
        erase_owned(state().surfaces, context);
        erase_owned(state().references, context);
    });
}

} // namespace soft
