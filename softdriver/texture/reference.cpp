#include "api/call.h"
#include "api/state.h"
#include "texture/objects.h"

#include <algorithm>

// This file implements texture and surface references: cuTexRef*, cuSurfRef* and the functions that
// find them in a module. They are older than texture objects, and deprecated.

namespace soft {

TextureReferencePtr make_reference(Context &owner, const std::string &name, bool surface) {
    auto reference = std::make_shared<TextureReference>();
    reference->owner = &owner;
    reference->name = name;
    reference->surface = surface;
    reference->handle = state().references.insert(reference, state().reuse());
    return reference;
}

TextureReferencePtr find_reference(const void *handle, bool surface) {
    TextureReferencePtr found = state().references.find(reinterpret_cast<uintptr_t>(handle));
    return found && found->surface == surface ? found : nullptr;
}

static BoundTexture bound_texture(const TextureReference &reference) {
    std::string name = std::string(reference.surface ? "surface" : "texture") + " reference '" +
                       reference.name + "'";
    if (!reference.bound)
        return {nullptr, "nothing is bound to the " + name};
    auto texture = std::make_shared<ptx::Texture>();
    CUresult status = reference.surface
                          ? make_surface(*reference.owner, reference.resource, *texture)
                          : make_texture(*reference.owner, reference.resource, reference.reading,
                                         nullptr, *texture);
    if (status)
        return {nullptr, "what is bound to the " + name +
                             " does not exist any more, or cannot be read in the way that is set"};
    return {texture, ""};
}

std::map<uint64_t, BoundTexture> bound_textures(const Module &module) {
    std::map<uint64_t, BoundTexture> found;
    for (const auto &[address, reference] : module.references)
        found[address] = bound_texture(*reference);
    return found;
}

namespace {

CUresult find_in_module(CUmodule handle, const char *name, bool surface, uintptr_t &reference) {
    if (!name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    ModulePtr module = find_module(handle);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    for (const auto &[address, known] : module->references)
        if (known->name == name && known->surface == surface) {
            reference = known->handle;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

// Binds a resource after checking that it can be read. How it is read may be set later.
CUresult bind(TextureReference &reference, const CUDA_RESOURCE_DESC &resource) {
    ptx::Texture texture;
    CUDA_TEXTURE_DESC plain = {};
    plain.flags = CU_TRSF_NORMALIZED_COORDINATES; // which mipmapped arrays need
    CUresult status = reference.surface
                          ? make_surface(*reference.owner, resource, texture)
                          : make_texture(*reference.owner, resource, plain, nullptr, texture);
    if (status)
        return status;
    reference.resource = resource;
    reference.bound = true;
    return CUDA_SUCCESS;
}

bool valid_dimension(int dimension) { return dimension >= 0 && dimension < 3; }

} // namespace

SOFT_API(cuModuleGetTexRef, (CUtexref * reference, CUmodule module, const char *name),
         (reference, module, name)) {
    if (!reference)
        return CUDA_ERROR_INVALID_VALUE;
    uintptr_t found = 0;
    if (CUresult status = find_in_module(module, name, false, found))
        return status;
    *reference = reinterpret_cast<CUtexref>(found);
    return CUDA_SUCCESS;
}

SOFT_API(cuModuleGetSurfRef, (CUsurfref * reference, CUmodule module, const char *name),
         (reference, module, name)) {
    if (!reference)
        return CUDA_ERROR_INVALID_VALUE;
    uintptr_t found = 0;
    if (CUresult status = find_in_module(module, name, true, found))
        return status;
    *reference = reinterpret_cast<CUsurfref>(found);
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefCreate, (CUtexref * handle), (handle)) {
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = reinterpret_cast<CUtexref>(make_reference(*call.context, "", false)->handle);
    return CUDA_SUCCESS;
}

// Only what cuTexRefCreate made is destroyed: other references belong to their module.
SOFT_API(cuTexRefDestroy, (CUtexref handle), (handle)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || !reference->name.empty())
        return CUDA_ERROR_INVALID_VALUE;
    state().references.erase(reference->handle);
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefSetArray, (CUtexref handle, CUarray array, unsigned flags),
         (handle, array, flags)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || flags != CU_TRSA_OVERRIDE_FORMAT)
        return CUDA_ERROR_INVALID_VALUE;
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    if (CUresult status = bind(*reference, resource))
        return status;
    ArrayPtr bound = find_array(array);
    reference->format = bound->descriptor.Format;
    reference->channels = bound->descriptor.NumChannels;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefSetMipmappedArray, (CUtexref handle, CUmipmappedArray array, unsigned flags),
         (handle, array, flags)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || flags != CU_TRSA_OVERRIDE_FORMAT)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap.hMipmappedArray = array;
    return bind(*reference, resource);
}

// Only aligned addresses can be bound. For any other address, binds the aligned address before it
// and returns the distance between the two. This is an error if the program passes no `offset`.
SOFT_API(cuTexRefSetAddress_v2,
         (size_t *offset, CUtexref handle, CUdeviceptr address, size_t bytes),
         (offset, handle, address, bytes)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference)
        return CUDA_ERROR_INVALID_VALUE;
    size_t beyond = address % texture_alignment;
    if (beyond && !offset)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = {address - beyond, reference->format, reference->channels,
                           bytes + beyond};
    if (CUresult status = bind(*reference, resource))
        return status;
    if (offset)
        *offset = beyond;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefSetAddress2D_v3,
         (CUtexref handle, const CUDA_ARRAY_DESCRIPTOR *descriptor, CUdeviceptr address,
          size_t pitch),
         (handle, descriptor, address, pitch)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || !descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D = {address,           descriptor->Format, descriptor->NumChannels,
                            descriptor->Width, descriptor->Height, pitch};
    return bind(*reference, resource);
}

SOFT_API(cuTexRefSetAddress2D_v2,
         (CUtexref handle, const CUDA_ARRAY_DESCRIPTOR *descriptor, CUdeviceptr address,
          size_t pitch),
         (handle, descriptor, address, pitch)) {
    return cuTexRefSetAddress2D_v3_body(call, handle, descriptor, address, pitch);
}

SOFT_API(cuTexRefSetFormat, (CUtexref handle, CUarray_format format, int channels),
         (handle, format, channels)) {
    TextureReferencePtr reference = find_reference(handle, false);
    ptx::Texture texture;
    if (!reference || channels < 1 || !read_format(format, unsigned(channels), texture))
        return CUDA_ERROR_INVALID_VALUE;
    reference->format = format;
    reference->channels = unsigned(channels);
    if (reference->resource.resType == CU_RESOURCE_TYPE_LINEAR) {
        reference->resource.res.linear.format = format;
        reference->resource.res.linear.numChannels = unsigned(channels);
    }
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefSetAddressMode, (CUtexref handle, int dimension, CUaddress_mode mode),
         (handle, dimension, mode)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || !valid_dimension(dimension) || mode < CU_TR_ADDRESS_MODE_WRAP ||
        mode > CU_TR_ADDRESS_MODE_BORDER)
        return CUDA_ERROR_INVALID_VALUE;
    reference->reading.addressMode[dimension] = mode;
    return CUDA_SUCCESS;
}

static CUresult set_filter(CUtexref handle, CUfilter_mode mode,
                           CUfilter_mode CUDA_TEXTURE_DESC::*member) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || (mode != CU_TR_FILTER_MODE_POINT && mode != CU_TR_FILTER_MODE_LINEAR))
        return CUDA_ERROR_INVALID_VALUE;
    reference->reading.*member = mode;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefSetFilterMode, (CUtexref handle, CUfilter_mode mode), (handle, mode)) {
    return set_filter(handle, mode, &CUDA_TEXTURE_DESC::filterMode);
}

SOFT_API(cuTexRefSetMipmapFilterMode, (CUtexref handle, CUfilter_mode mode), (handle, mode)) {
    return set_filter(handle, mode, &CUDA_TEXTURE_DESC::mipmapFilterMode);
}

SOFT_API(cuTexRefSetMipmapLevelBias, (CUtexref handle, float bias), (handle, bias)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference)
        return CUDA_ERROR_INVALID_VALUE;
    reference->reading.mipmapLevelBias = bias;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefSetMipmapLevelClamp, (CUtexref handle, float least, float greatest),
         (handle, least, greatest)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference)
        return CUDA_ERROR_INVALID_VALUE;
    reference->reading.minMipmapLevelClamp = least;
    reference->reading.maxMipmapLevelClamp = greatest;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefSetMaxAnisotropy, (CUtexref handle, unsigned most), (handle, most)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference)
        return CUDA_ERROR_INVALID_VALUE;
    reference->reading.maxAnisotropy = most;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefSetBorderColor, (CUtexref handle, float *color), (handle, color)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || !color)
        return CUDA_ERROR_INVALID_VALUE;
    std::copy_n(color, 4, reference->reading.borderColor);
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefSetFlags, (CUtexref handle, unsigned flags), (handle, flags)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || flags & ~known_texture_flags)
        return CUDA_ERROR_INVALID_VALUE;
    reference->reading.flags = flags;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefGetAddress_v2, (CUdeviceptr * address, CUtexref handle), (address, handle)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || !address || !reference->bound)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_RESOURCE_DESC &resource = reference->resource;
    if (resource.resType == CU_RESOURCE_TYPE_LINEAR)
        *address = resource.res.linear.devPtr;
    else if (resource.resType == CU_RESOURCE_TYPE_PITCH2D)
        *address = resource.res.pitch2D.devPtr;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefGetArray, (CUarray * array, CUtexref handle), (array, handle)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || !array || !reference->bound ||
        reference->resource.resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    *array = reference->resource.res.array.hArray;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefGetMipmappedArray, (CUmipmappedArray * array, CUtexref handle), (array, handle)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || !array || !reference->bound ||
        reference->resource.resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    *array = reference->resource.res.mipmap.hMipmappedArray;
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefGetFormat, (CUarray_format * format, int *channels, CUtexref handle),
         (format, channels, handle)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference)
        return CUDA_ERROR_INVALID_VALUE;
    if (format)
        *format = reference->format;
    if (channels)
        *channels = int(reference->channels);
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefGetAddressMode, (CUaddress_mode * mode, CUtexref handle, int dimension),
         (mode, handle, dimension)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || !mode || !valid_dimension(dimension))
        return CUDA_ERROR_INVALID_VALUE;
    *mode = reference->reading.addressMode[dimension];
    return CUDA_SUCCESS;
}

// Returns a member of how a texture reference reads.
template <class Value, class Member>
static CUresult get_reading(CUtexref handle, Value *value, Member CUDA_TEXTURE_DESC::*member) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || !value)
        return CUDA_ERROR_INVALID_VALUE;
    *value = static_cast<Value>(reference->reading.*member);
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefGetFilterMode, (CUfilter_mode * mode, CUtexref handle), (mode, handle)) {
    return get_reading(handle, mode, &CUDA_TEXTURE_DESC::filterMode);
}

SOFT_API(cuTexRefGetMipmapFilterMode, (CUfilter_mode * mode, CUtexref handle), (mode, handle)) {
    return get_reading(handle, mode, &CUDA_TEXTURE_DESC::mipmapFilterMode);
}

SOFT_API(cuTexRefGetMipmapLevelBias, (float *bias, CUtexref handle), (bias, handle)) {
    return get_reading(handle, bias, &CUDA_TEXTURE_DESC::mipmapLevelBias);
}

SOFT_API(cuTexRefGetMipmapLevelClamp, (float *least, float *greatest, CUtexref handle),
         (least, greatest, handle)) {
    if (CUresult status = get_reading(handle, least, &CUDA_TEXTURE_DESC::minMipmapLevelClamp))
        return status;
    return get_reading(handle, greatest, &CUDA_TEXTURE_DESC::maxMipmapLevelClamp);
}

SOFT_API(cuTexRefGetMaxAnisotropy, (int *most, CUtexref handle), (most, handle)) {
    return get_reading(handle, most, &CUDA_TEXTURE_DESC::maxAnisotropy);
}

SOFT_API(cuTexRefGetBorderColor, (float *color, CUtexref handle), (color, handle)) {
    TextureReferencePtr reference = find_reference(handle, false);
    if (!reference || !color)
        return CUDA_ERROR_INVALID_VALUE;
    std::copy_n(reference->reading.borderColor, 4, color);
    return CUDA_SUCCESS;
}

SOFT_API(cuTexRefGetFlags, (unsigned *flags, CUtexref handle), (flags, handle)) {
    return get_reading(handle, flags, &CUDA_TEXTURE_DESC::flags);
}

SOFT_API(cuSurfRefSetArray, (CUsurfref handle, CUarray array, unsigned flags),
         (handle, array, flags)) {
    TextureReferencePtr reference = find_reference(handle, true);
    if (!reference || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    return bind(*reference, resource);
}

SOFT_API(cuSurfRefGetArray, (CUarray * array, CUsurfref handle), (array, handle)) {
    TextureReferencePtr reference = find_reference(handle, true);
    if (!reference || !array || !reference->bound)
        return CUDA_ERROR_INVALID_VALUE;
    *array = reference->resource.res.array.hArray;
    return CUDA_SUCCESS;
}

} // namespace soft
