#include "code/code_library.h"
#include "api/call.h"

#include "api/state.h"
#include "code/jit.h"

#include <cstring>

// This file implements cuLibrary*, which load and unload libraries and look up their parts by name.

namespace soft {

CodeLibraryPtr find_library(CUlibrary handle) {
    return state().libraries.find(reinterpret_cast<uintptr_t>(handle));
}

LibraryKernelPtr kernel_of(const CodeLibraryPtr &library, int index) {
    CUkernel &handle = library->kernels[index];
    if (handle)
        return find_library_kernel(handle);
    auto kernel = std::make_shared<LibraryKernel>();
    kernel->library = library;
    kernel->index = index;
    handle = reinterpret_cast<CUkernel>(state().kernels.insert(kernel, state().reuse()));
    kernel->handle = handle;
    return kernel;
}

CUresult module_of(const CodeLibraryPtr &library, const ContextPtr &context, ModulePtr &module) {
    if (CUresult status = context_status(context.get()))
        return status;
    auto loaded = library->modules.find(context.get());
    if (loaded != library->modules.end()) {
        module = loaded->second;
        return CUDA_SUCCESS;
    }
    if (CUresult status = load_module(context, library->program, module))
        return status;
    module->of_library = true;
    library->modules.emplace(context.get(), module);
    return CUDA_SUCCESS;
}

static void erase_library(const CodeLibrary &library) {
    for (CUkernel kernel : library.kernels)
        state().kernels.erase(reinterpret_cast<uintptr_t>(kernel));
    state().libraries.erase(reinterpret_cast<uintptr_t>(library.handle));
}

// Removes the modules that libraries have loaded into a context.
static void leave_context(const Context &context) {
    for (const auto &entry : state().libraries)
        entry.second->modules.erase(&context);
}

void unload_libraries() {
    std::vector<CodeLibraryPtr> libraries;
    for (const auto &entry : state().libraries)
        libraries.push_back(entry.second);
    for (const CodeLibraryPtr &library : libraries)
        erase_library(*library);
}

static CUresult load_library(Call &call, CUlibrary *handle, const Image &image,
                             JitOptions &options) {
    ProgramPtr program;
    if (CUresult status = compile(call, image, options, program))
        return status;
    auto library = std::make_shared<CodeLibrary>();
    library->program = program;
    library->kernels.resize(program->kernels.size());
    library->handle =
        reinterpret_cast<CUlibrary>(state().libraries.insert(library, state().reuse()));
    *handle = library->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuLibraryLoadData,
         (CUlibrary * library, const void *code, CUjit_option *options, void **values,
          unsigned count, CUlibraryOption *library_options, void **library_values,
          unsigned library_count),
         (library, code, options, values, count, library_options, library_values, library_count)) {
    JitOptions chosen;
    Image image;
    if (!library || (library_count && (!library_options || !library_values)))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < library_count; i++)
        if (library_options[i] < 0 || library_options[i] >= CU_LIBRARY_NUM_OPTIONS)
            return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = chosen.read(count, options, values))
        return status;
    if (CUresult status = read_image(code, image))
        return status;
    return load_library(call, library, image, chosen);
}

SOFT_API(cuLibraryLoadFromFile,
         (CUlibrary * library, const char *path, CUjit_option *options, void **values,
          unsigned count, CUlibraryOption *library_options, void **library_values,
          unsigned library_count),
         (library, path, options, values, count, library_options, library_values, library_count)) {
    std::string content;
    if (!library)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = read_file(path, content))
        return status;
    return cuLibraryLoadData_body(call, library, content.c_str(), options, values, count,
                                  library_options, library_values, library_count);
}

SOFT_API(cuLibraryUnload, (CUlibrary handle), (handle)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    CodeLibraryPtr library = find_library(handle);
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    while (!library->modules.empty()) {
        ModulePtr module = library->modules.begin()->second;
        library->modules.erase(library->modules.begin());
        unload_module(call.lock, module);
    }
    erase_library(*library);
    return CUDA_SUCCESS;
}

SOFT_API(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary handle, const char *name),
         (kernel, handle, name)) {
    CodeLibraryPtr library = find_library(handle);
    if (!kernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    int index = find_kernel(*library->program, name);
    if (index < 0)
        return CUDA_ERROR_NOT_FOUND;
    *kernel = kernel_of(library, index)->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuLibraryGetKernelCount, (unsigned *count, CUlibrary handle), (count, handle)) {
    CodeLibraryPtr library = find_library(handle);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    *count = static_cast<unsigned>(library->kernels.size());
    return CUDA_SUCCESS;
}

SOFT_API(cuLibraryEnumerateKernels, (CUkernel * kernels, unsigned room, CUlibrary handle),
         (kernels, room, handle)) {
    CodeLibraryPtr library = find_library(handle);
    if (!kernels)
        return CUDA_ERROR_INVALID_VALUE;
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    size_t count = std::min<size_t>(room, library->kernels.size());
    for (size_t i = 0; i < count; i++)
        kernels[i] = kernel_of(library, static_cast<int>(i))->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuLibraryGetModule, (CUmodule * result, CUlibrary handle), (result, handle)) {
    CodeLibraryPtr library = find_library(handle);
    if (!result)
        return CUDA_ERROR_INVALID_VALUE;
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    ModulePtr module;
    if (CUresult status = module_of(library, call.context, module))
        return status;
    *result = module->handle;
    return CUDA_SUCCESS;
}

// Looks up a variable of a library. With `only_managed`, finds only managed variables.
static CUresult get_variable(Call &call, CUdeviceptr *address, size_t *bytes, CUlibrary handle,
                             const char *name, bool only_managed) {
    CodeLibraryPtr library = find_library(handle);
    if (!name || (!address && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    int index = find_variable(*library->program, name);
    if (index < 0 && !only_managed)
        return no_variable(*library->program, name);
    if (index < 0 || (only_managed && !library->program->variables[index].managed))
        return CUDA_ERROR_NOT_FOUND;
    ModulePtr module;
    if (CUresult status = module_of(library, call.context, module))
        return status;
    if (address)
        *address = module->variables[index];
    if (bytes)
        *bytes = library->program->variables[index].bytes();
    return CUDA_SUCCESS;
}

SOFT_API(cuLibraryGetGlobal,
         (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
         (address, bytes, library, name)) {
    return get_variable(call, address, bytes, library, name, false);
}

SOFT_API(cuLibraryGetManaged,
         (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
         (address, bytes, library, name)) {
    return get_variable(call, address, bytes, library, name, true);
}

// Never finds a function, because PTX has no functions that host and device share.
SOFT_API(cuLibraryGetUnifiedFunction, (void **function, CUlibrary handle, const char *name),
         (function, handle, name)) {
    if (!function || !name)
        return CUDA_ERROR_INVALID_VALUE;
    return find_library(handle) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

[[gnu::constructor]] static void add_libraries() {
    add_context_end(ContextEnd::Libraries, leave_context);
}

} // namespace soft
