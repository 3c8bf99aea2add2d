#include "code/link.h"
#include "api/call.h"

#include "api/state.h"
#include "code/device_runtime.h"

#include <iterator>

// This file implements cuLink*, which link PTX texts. The result is not machine code, but an image
// that only this driver can load.

namespace soft {
namespace {

std::shared_ptr<Link> find_link(CUlinkState handle) {
    return state().links.find(reinterpret_cast<uintptr_t>(handle));
}

// Adds the device functions that this driver has instead of libcudadevrt.a.
CUresult add_device_runtime(Link &link) {
    link.image.texts.push_back(device_runtime);
    link.image.names.push_back("cudadevrt");
    return CUDA_SUCCESS;
}

// Adds an input. After most errors the link is unchanged and accepts other inputs. But NVVM, and
// machine code in CUBIN format, make the whole link fail.
CUresult add(Call &call, Link &link, CUjitInputType type, const void *data, size_t bytes,
             const char *name) {
    Image image;
    link.inputs++;
    if (type == CU_JIT_INPUT_NVVM)
        return link.failure = CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    if (type == CU_JIT_INPUT_LIBRARY && is_device_runtime(data, bytes))
        return add_device_runtime(link);
    bool text = type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY;
    bool readable = text || is_for_machine_code(data, bytes);
    if (!readable && type == CU_JIT_INPUT_CUBIN)
        return link.failure = CUDA_ERROR_INVALID_IMAGE;
    CUresult status = readable ? read_image(data, bytes, image) : CUDA_ERROR_INVALID_IMAGE;
    if (status) {
        link.options.tell(readable ? "error: the input is neither PTX nor a fatbin with PTX"
                                   : "error: the input is machine code, which the software driver "
                                     "cannot link");
        return status;
    }
    if ((status = check_parts(call, image, link.options)))
        return status;
    std::string called = name ? name : "Input " + std::to_string(link.inputs);
    link.image.names.insert(link.image.names.end(), image.texts.size(), called);
    std::move(image.texts.begin(), image.texts.end(), std::back_inserter(link.image.texts));
    return CUDA_SUCCESS;
}

} // namespace

SOFT_API(cuLinkCreate_v2,
         (unsigned count, CUjit_option *options, void **values, CUlinkState *handle),
         (count, options, values, handle)) {
    auto link = std::make_shared<Link>();
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = link->options.read(count, options, values))
        return status;
    link->owner = call.context.get();
    link->handle = reinterpret_cast<CUlinkState>(state().links.insert(link, state().reuse()));
    *handle = link->handle;
    link->options.tell("");
    return CUDA_SUCCESS;
}

SOFT_API(cuLinkCreate, (unsigned count, CUjit_option *options, void **values, CUlinkState *handle),
         (count, options, values, handle)) {
    return cuLinkCreate_v2_body(call, count, options, values, handle);
}

SOFT_API(cuLinkAddData_v2,
         (CUlinkState handle, CUjitInputType type, void *data, size_t bytes, const char *name,
          unsigned count, CUjit_option *options, void **values),
         (handle, type, data, bytes, name, count, options, values)) {
    std::shared_ptr<Link> link = find_link(handle);
    JitOptions chosen;
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    bool over = !link->result.empty() || link->failure;
    if (!data || !bytes || over || type < 0 || type >= CU_JIT_NUM_INPUT_TYPES)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = chosen.read(count, options, values))
        return status;
    return chosen.for_all() ? CUDA_ERROR_INVALID_VALUE : add(call, *link, type, data, bytes, name);
}

SOFT_API(cuLinkAddData,
         (CUlinkState handle, CUjitInputType type, void *data, size_t bytes, const char *name,
          unsigned count, CUjit_option *options, void **values),
         (handle, type, data, bytes, name, count, options, values)) {
    return cuLinkAddData_v2_body(call, handle, type, data, bytes, name, count, options, values);
}

SOFT_API(cuLinkAddFile_v2,
         (CUlinkState handle, CUjitInputType type, const char *path, unsigned count,
          CUjit_option *options, void **values),
         (handle, type, path, count, options, values)) {
    std::string content;
    if (!find_link(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult status = read_file(path, content))
        return status;
    return cuLinkAddData_v2_body(call, handle, type, content.data(), content.size(), path, count,
                                 options, values);
}

SOFT_API(cuLinkAddFile,
         (CUlinkState handle, CUjitInputType type, const char *path, unsigned count,
          CUjit_option *options, void **values),
         (handle, type, path, count, options, values)) {
    return cuLinkAddFile_v2_body(call, handle, type, path, count, options, values);
}

// The image that cuLinkComplete returns belongs to the link, and is freed with the link.
SOFT_API(cuLinkComplete, (CUlinkState handle, void **result, size_t *bytes),
         (handle, result, bytes)) {
    std::shared_ptr<Link> link = find_link(handle);
    if (!link || !link->result.empty())
        return CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        return CUDA_ERROR_INVALID_VALUE;
    if (link->failure)
        return link->failure;
    ProgramPtr program;
    if (CUresult status = compile(call, link->image, link->options, program))
        return link->failure =
                   status == CUDA_ERROR_INVALID_PTX ? CUDA_ERROR_INVALID_SOURCE : status;
    link->image.max_registers = link->options.max_registers();
    link->result = linked_image(link->image);
    *result = link->result.data();
    if (bytes)
        *bytes = link->result.size();
    return CUDA_SUCCESS;
}

SOFT_API(cuLinkDestroy, (CUlinkState handle), (handle)) {
    if (!find_link(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    state().links.erase(reinterpret_cast<uintptr_t>(handle));
    return CUDA_SUCCESS;
}

} // namespace soft
