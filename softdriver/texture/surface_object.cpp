#include "api/call.h"
#include "api/state.h"
#include "base/notes.h"
#include "texture/objects.h"

// This file implements cuSurfObject*.

namespace soft {

static TextureObjectPtr find_surface_object(CUsurfObject handle) {
    return state().surfaces.find(handle);
}

CUresult make_surface(const Context &context, const CUDA_RESOURCE_DESC &resource,
                      ptx::Texture &texture) {
    ArrayPtr array;
    if (CUresult status = find_resource(context, resource.res.array.hArray, array))
        return status;
    if (!(array->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST))
        warn("a surface of an array that was made without CUDA_ARRAY3D_SURFACE_LDST, which "
             "surfaces need; NVIDIA's driver does not check this");
    texture.surface = true;
    return read_array(*array, texture);
}

SOFT_API(cuSurfObjectCreate, (CUsurfObject * handle, const CUDA_RESOURCE_DESC *resource),
         (handle, resource)) {
    if (!handle || !resource || resource->flags || resource->resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_shared<TextureObject>();
    object->owner = call.context.get();
    object->resource = *resource;
    if (CUresult status = make_surface(*call.context, *resource, object->texture))
        return status;
    *handle = state().surfaces.insert(object, state().reuse());
    return CUDA_SUCCESS;
}

SOFT_API(cuSurfObjectDestroy, (CUsurfObject handle), (handle)) {
    if (!find_surface_object(handle))
        return CUDA_ERROR_INVALID_VALUE;
    state().surfaces.erase(handle);
    return CUDA_SUCCESS;
}

SOFT_API(cuSurfObjectGetResourceDesc, (CUDA_RESOURCE_DESC * resource, CUsurfObject handle),
         (resource, handle)) {
    TextureObjectPtr object = find_surface_object(handle);
    if (!object || !resource)
        return CUDA_ERROR_INVALID_VALUE;
    *resource = object->resource;
    return CUDA_SUCCESS;
}

} // namespace soft
