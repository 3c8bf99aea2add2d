#pragma once

#include "memory/array.h"
#include "ptx/texture.h"

#include <memory>
#include <string>

namespace soft {

// A texture object or a surface object.
struct TextureObject {
    Context *owner = nullptr;
    CUDA_RESOURCE_DESC resource = {};
    // What surface objects do not have.
    CUDA_TEXTURE_DESC reading = {};
    bool has_view = false;
    CUDA_RESOURCE_VIEW_DESC view = {};
    ptx::Texture texture; // what kernels use
};

using TextureObjectPtr = std::shared_ptr<TextureObject>;

// Finds the object that a kernel of a context uses by its handle. Returns null, and says why, if
// it cannot.
std::shared_ptr<const ptx::Texture> texture_of(const Context &context, uint64_t handle,
                                               bool surface, std::string &why);

// Finds the array of a resource, which must be one of the context.
CUresult find_resource(const Context &context, CUarray handle, ArrayPtr &array);
// Read the elements that a resource has, without the way in which they are read.
CUresult read_array(const Array &array, ptx::Texture &texture);
bool read_format(CUarray_format format, unsigned channels, ptx::Texture &texture);

} // namespace soft
