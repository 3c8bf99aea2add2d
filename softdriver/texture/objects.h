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
    // How a texture object reads elements, and its view. Surface objects have neither.
    CUDA_TEXTURE_DESC reading = {};
    bool has_view = false;
    CUDA_RESOURCE_VIEW_DESC view = {};
    ptx::Texture texture; // what kernels use
};

using TextureObjectPtr = std::shared_ptr<TextureObject>;

// Returns the texture that a kernel of the context uses by this handle. If the kernel cannot use
// the handle, returns null and sets `why`.
std::shared_ptr<const ptx::Texture> texture_of(const Context &context, uint64_t handle,
                                               bool surface, std::string &why);

// Finds the array of a resource. The array must belong to the context.
CUresult find_resource(const Context &context, CUarray handle, ArrayPtr &array);
// Describe the elements of a resource in `texture`, but not how the elements are read.
CUresult read_array(const Array &array, ptx::Texture &texture);
bool read_format(CUarray_format format, unsigned channels, ptx::Texture &texture);

} // namespace soft
