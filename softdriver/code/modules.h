#pragma once

#include "base/cuda_api.h"
#include "device/context.h"
#include "ptx/program.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace soft {

// Returns the product of the numbers, such as the number of threads of a block of this shape.
inline uint64_t product(const unsigned (&numbers)[3]) {
    return uint64_t(numbers[0]) * numbers[1] * numbers[2];
}

using ProgramPtr = std::shared_ptr<const ptx::Program>;

// The attributes that a program has set on a kernel.
struct KernelSettings {
    int dynamic_shared = -1; // in bytes; -1 means the limit that needs no opt-in
    int carveout = -1;
    int large_clusters = 0;
    int cluster_policy = 0;
    int cluster[3] = {}; // the cluster shape, if the kernel's code does not require one
};

struct TextureReference;

// Code that is loaded into a context, with memory for the code's variables.
struct Module {
    CUmodule handle = nullptr;
    Context *owner = nullptr;
    ProgramPtr program;
    std::vector<uintptr_t> variables; // address of each variable in Program::variables
    // The handle of each kernel, by index. It is null until the program asks for it.
    std::vector<CUfunction> functions;
    // The texture and surface references, by the address of their variables.
    std::map<uintptr_t, std::shared_ptr<TextureReference>> references;
    bool of_library = false;
};

using ModulePtr = std::shared_ptr<Module>;

// The block shape, shared memory and parameters for the next cuLaunch, cuLaunchGrid or
// cuLaunchGridAsync, whose arguments do not include these.
struct OldLaunch {
    unsigned block[3] = {}; // all zero if the program has not set a shape
    unsigned shared = 0;
    unsigned bytes = 0; // size of the parameters in bytes
    std::vector<uint8_t> parameters;
};

struct KernelFunction {
    CUfunction handle = nullptr;
    Context *owner = nullptr;
    ModulePtr module;
    const ptx::Kernel *kernel = nullptr;
    KernelSettings settings;
    // What the program has set for cuLaunch, or null if it has set nothing since the last
    // cuLaunchKernel, which clears this.
    std::unique_ptr<OldLaunch> old_launch;
};

using KernelFunctionPtr = std::shared_ptr<KernelFunction>;

ModulePtr find_module(CUmodule handle);
// Loads a program into a context. Allocates and initialises the program's variables.
CUresult load_module(const ContextPtr &context, const ProgramPtr &program, ModulePtr &module);
// Waits for all work of the module's context, then unloads the module.
void unload_module(Lock &lock, const ModulePtr &module);
// Removes the handles of the module and of its functions. Does not free its variables.
void erase_module(const Module &module);
// Return the index of the kernel or variable with this name, or -1. References are not variables.
int find_kernel(const ptx::Program &program, const std::string &name);
int find_variable(const ptx::Program &program, const std::string &name);
// Returns the error for a name that no variable has. As on an H200, the error depends on whether a
// kernel or a reference has the name.
CUresult no_variable(const ptx::Program &program, const std::string &name);
// Returns the function for a kernel of the module. Repeated calls return the same object.
KernelFunctionPtr function_of(const ModulePtr &module, int kernel);
// Returns how many bytes of constant memory the program's variables use.
size_t constant_bytes(const ptx::Program &program);
// Returns how many bytes of static shared memory a block has.
size_t static_shared(const ptx::Kernel &kernel);

// Returns how many bytes of dynamic shared memory a launch may use.
size_t dynamic_shared_limit(const ptx::Kernel &kernel, const KernelSettings &settings);
// Returns how many threads a block may have.
unsigned thread_limit(const ptx::Kernel &kernel);
// Returns the number of blocks that a cluster has in one dimension, which the kernel's code or else
// the program sets. Returns 0 if neither does.
int cluster_size(const ptx::Kernel &kernel, const KernelSettings &settings, int dimension);
CUresult read_function_attribute(const ptx::Program &program, const ptx::Kernel &kernel,
                                 const KernelSettings &settings, int attribute, int *value);
CUresult write_function_attribute(const ptx::Kernel &kernel, KernelSettings &settings,
                                  int attribute, int value);

} // namespace soft
