#pragma once

#include "memory/array.h"
#include "ptx/texture.h"

#include <map>
#include <memory>
#include <string>

namespace soft {

struct Module;

// A texture object or a surface object.
struct TextureObject {
    Context *owner = nullptr;
    CUDA_RESOURCE_DESC resource = {};
    // How a texture object reads elements, and its view. Surface objects have neither.
    CUDA_TEXTURE_DESC reading = {};
    bool has_view = false;
    CUDA_RESOURCE_VIEW_DESC view = {};
    ptx::Texture texture; // what kernels use
};

using TextureObjectPtr = std::shared_ptr<TextureObject>;

// A texture reference or a surface reference, to which the program binds memory. Kernels read
// through the variable of type .texref or .surfref that it belongs to.
struct TextureReference {
    uintptr_t handle = 0;
    Context *owner = nullptr;
    std::string name; // of the variable; empty if cuTexRefCreate made the reference
    bool surface = false;
    bool bound = false;
    // What is bound, and how it is read. `format` and `channels` are those of memory that is bound.
    CUDA_RESOURCE_DESC resource = {};
    CUDA_TEXTURE_DESC reading = {};
    CUarray_format format = CU_AD_FORMAT_FLOAT;
    unsigned channels = 1;
};

using TextureReferencePtr = std::shared_ptr<TextureReference>;

TextureReferencePtr make_reference(Context &owner, const std::string &name, bool surface);

// Returns null if there is no such texture or surface reference.
TextureReferencePtr find_reference(const void *handle, bool surface);

// What a kernel finds behind a reference. If `texture` is null, `why` says why.
struct BoundTexture {
    std::shared_ptr<const ptx::Texture> texture;
    std::string why;
};

// Returns what is bound to the references of a module now, by the address of their variables.
std::map<uint64_t, BoundTexture> bound_textures(const Module &module);

// Returns the texture that a kernel of the context uses by this handle. If the kernel cannot use
// the handle, returns null and sets `why`.
std::shared_ptr<const ptx::Texture> texture_of(const Context &context, uint64_t handle,
                                               bool surface, std::string &why);

// The alignment of a texture's memory, and the flags of textures.
constexpr uintptr_t texture_alignment = 512;
constexpr unsigned known_texture_flags = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                                         CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                                         CU_TRSF_SEAMLESS_CUBEMAP;

// Finds the array of a resource. The array must belong to the context.
CUresult find_resource(const Context &context, CUarray handle, ArrayPtr &array);
// Make the texture or the surface of a resource.
CUresult make_texture(const Context &context, const CUDA_RESOURCE_DESC &resource,
                      const CUDA_TEXTURE_DESC &reading, const CUDA_RESOURCE_VIEW_DESC *view,
                      ptx::Texture &texture);
CUresult make_surface(const Context &context, const CUDA_RESOURCE_DESC &resource,
                      ptx::Texture &texture);
// Describe the elements of a resource in `texture`, but not how the elements are read.
CUresult read_array(const Array &array, ptx::Texture &texture);
bool read_format(CUarray_format format, unsigned channels, ptx::Texture &texture);

} // namespace soft
