#include "code/modules.h"
#include "api/call.h"

#include "api/state.h"
#include "base/range.h"
#include "code/jit.h"
#include "device/device_attributes.h"

#include <algorithm>
#include <cstring>

// This file implements cuModule*, which load and unload modules and look up their parts by name.

namespace soft {
namespace {

using Reference = ptx::Variable::Reference;

template <class Item> int find_named(const std::vector<Item> &items, const std::string &name) {
    for (size_t i = 0; i < items.size(); i++)
        if (items[i].name == name)
            return static_cast<int>(i);
    return -1;
}

// Returns the number of bytes to allocate for a variable. A variable of size 0 gets one byte, so
// that its address is unique.
size_t bytes_of(const ptx::Variable &variable) { return std::max<size_t>(1, variable.bytes()); }

CUresult allocate_variable(const Context &context, const ptx::Variable &variable,
                           uintptr_t &address) {
    Allocation *allocation = nullptr;
    size_t bytes = bytes_of(variable);
    CUresult status = variable.managed
                          ? allocate_managed(context, bytes, CU_MEM_ATTACH_GLOBAL, allocation)
                          : allocate_device(context, bytes, MemoryKind::Device, allocation);
    if (status)
        return status;
    give_to_module(*allocation);
    allocation->read_only = variable.space == ptx::Space::Const;
    size_t given = std::min(variable.initial.size(), bytes);
    std::copy_n(variable.initial.begin(), given, allocation->host);
    std::memset(allocation->host + given, 0, bytes - given);
    address = allocation->begin;
    return CUDA_SUCCESS;
}

// Stores the addresses that initial values of variables contain. They are known only when all
// variables have memory.
void store_addresses(const Module &module) {
    const auto &variables = module.program->variables;
    for (size_t i = 0; i < variables.size(); i++)
        for (const ptx::Variable::Address &place : variables[i].addresses) {
            uint64_t value = place.function ? ptx::function_address(place.target)
                                            : module.variables.at(place.target);
            value += place.addend;
            const Allocation *allocation = find_allocation(module.variables[i]);
            if (place.width <= sizeof value && place.offset + place.width <= allocation->bytes)
                std::memcpy(allocation->host + place.offset, &value, place.width);
        }
}

void free_variables(const Module &module) {
    for (uintptr_t address : module.variables)
        if (Allocation *allocation = find_start(address)) {
            state().races.freed_by_host(*allocation);
            free_allocation(*allocation);
        }
}

} // namespace

size_t constant_bytes(const ptx::Program &program) {
    size_t bytes = 0;
    for (const ptx::Variable &variable : program.variables)
        if (variable.space == ptx::Space::Const)
            bytes = round_up(bytes, variable.alignment) + variable.bytes();
    return bytes;
}

ModulePtr find_module(CUmodule handle) {
    return state().modules.find(reinterpret_cast<uintptr_t>(handle));
}

int find_kernel(const ptx::Program &program, const std::string &name) {
    return find_named(program.kernels, name);
}

int find_variable(const ptx::Program &program, const std::string &name) {
    int found = find_named(program.variables, name);
    bool refers = found >= 0 && program.variables[found].reference != Reference::None;
    return refers ? -1 : found;
}

CUresult no_variable(const ptx::Program &program, const std::string &name) {
    bool other = find_kernel(program, name) >= 0 || find_named(program.variables, name) >= 0;
    return other ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}

CUresult load_module(const ContextPtr &context, const ProgramPtr &program, ModulePtr &module) {
    if (CUresult status = context_status(context.get()))
        return status;
    module = std::make_shared<Module>();
    module->owner = context.get();
    module->program = program;
    module->functions.resize(program->kernels.size());
    for (const ptx::Variable &variable : program->variables) {
        uintptr_t address = 0;
        if (CUresult status = allocate_variable(*context, variable, address)) {
            free_variables(*module);
            erase_module(*module);
            return status;
        }
        module->variables.push_back(address);
        if (variable.reference != Reference::None)
            module->references[address] =
                make_reference(*context, variable.name, variable.reference == Reference::Surface);
    }
    store_addresses(*module);
    module->handle = reinterpret_cast<CUmodule>(state().modules.insert(module, state().reuse()));
    return CUDA_SUCCESS;
}

void erase_module(const Module &module) {
    for (CUfunction function : module.functions)
        state().functions.erase(reinterpret_cast<uintptr_t>(function));
    for (const auto &[address, reference] : module.references)
        state().references.erase(reference->handle);
    state().modules.erase(reinterpret_cast<uintptr_t>(module.handle));
}

void unload_module(Lock &lock, const ModulePtr &module) {
    ContextPtr context = find_context(module->owner->handle);
    finish_context(lock, *context);
    if (find_module(module->handle) != module)
        return; // while this thread waited, another thread unloaded the module
    free_variables(*module);
    erase_module(*module);
}

KernelFunctionPtr function_of(const ModulePtr &module, int kernel) {
    CUfunction &handle = module->functions[kernel];
    if (handle)
        return state().functions.find(reinterpret_cast<uintptr_t>(handle));
    auto function = std::make_shared<KernelFunction>();
    function->owner = module->owner;
    function->module = module;
    function->kernel = &module->program->kernels[kernel];
    handle = reinterpret_cast<CUfunction>(state().functions.insert(function, state().reuse()));
    function->handle = handle;
    return function;
}

static CUresult load_text(Call &call, CUmodule *handle, const Image &image, JitOptions &options) {
    ProgramPtr program;
    ContextPtr context = call.context;
    if (CUresult status = compile(call, image, options, program))
        return status;
    ModulePtr module;
    if (CUresult status = load_module(context, program, module))
        return status;
    *handle = module->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuModuleLoadDataEx,
         (CUmodule * module, const void *data, unsigned count, CUjit_option *options,
          void **values),
         (module, data, count, options, values)) {
    JitOptions chosen;
    Image image;
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = chosen.read(count, options, values))
        return status;
    if (CUresult status = read_image(data, image))
        return status;
    return load_text(call, module, image, chosen);
}

SOFT_API(cuModuleLoadData, (CUmodule * module, const void *image), (module, image)) {
    return cuModuleLoadDataEx_body(call, module, image, 0, nullptr, nullptr);
}

SOFT_API(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image)) {
    return cuModuleLoadDataEx_body(call, module, image, 0, nullptr, nullptr);
}

SOFT_API(cuModuleLoad, (CUmodule * module, const char *path), (module, path)) {
    std::string content;
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = read_file(path, content))
        return status;
    return cuModuleLoadDataEx_body(call, module, content.c_str(), 0, nullptr, nullptr);
}

SOFT_API(cuModuleUnload, (CUmodule handle), (handle)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    ModulePtr module = find_module(handle);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    if (module->of_library)
        return CUDA_ERROR_NOT_PERMITTED;
    unload_module(call.lock, module);
    return CUDA_SUCCESS;
}

// Reports eager loading, because this driver loads all code of a module at once.
SOFT_API(cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), (mode)) {
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

SOFT_API(cuModuleGetFunction, (CUfunction * function, CUmodule handle, const char *name),
         (function, handle, name)) {
    if (!function || !name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    ModulePtr module = find_module(handle);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    int kernel = find_kernel(*module->program, name);
    if (kernel < 0)
        return CUDA_ERROR_NOT_FOUND;
    *function = function_of(module, kernel)->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuModuleGetFunctionCount, (unsigned *count, CUmodule handle), (count, handle)) {
    ModulePtr module = find_module(handle);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    *count = static_cast<unsigned>(module->functions.size());
    return CUDA_SUCCESS;
}

SOFT_API(cuModuleEnumerateFunctions, (CUfunction * functions, unsigned room, CUmodule handle),
         (functions, room, handle)) {
    ModulePtr module = find_module(handle);
    if (!functions)
        return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    size_t count = std::min<size_t>(room, module->functions.size());
    for (size_t i = 0; i < count; i++)
        functions[i] = function_of(module, static_cast<int>(i))->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuModuleGetGlobal_v2,
         (CUdeviceptr * address, size_t *bytes, CUmodule handle, const char *name),
         (address, bytes, handle, name)) {
    if (!name || !*name || (!address && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    ModulePtr module = find_module(handle);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    int variable = find_variable(*module->program, name);
    if (variable < 0)
        return no_variable(*module->program, name);
    if (address)
        *address = module->variables[variable];
    if (bytes)
        *bytes = module->program->variables[variable].bytes();
    return CUDA_SUCCESS;
}

[[gnu::constructor]] static void add_code() {
    add_context_end(ContextEnd::Code, [](const Context &context) {
        erase_owned(state().modules, context);
        erase_owned(state().functions, context);
        erase_owned(state().links, context);
    });
}

} // namespace soft
