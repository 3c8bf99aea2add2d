#pragma once

#include "base/cuda_api.h"
#include "device/context.h"
#include "ptx/program.h"

#include <memory>
#include <string>
#include <vector>

namespace soft {

using ProgramPtr = std::shared_ptr<const ptx::Program>;

// What a program has said about a kernel.
struct KernelSettings {
    int dynamic_shared = -1; // bytes; -1: as many as fit without asking
    int carveout = -1;
    int large_clusters = 0;
    int cluster_policy = 0;
    int cluster[3] = {}; // of a kernel that says nothing of clusters itself
};

// Code that is loaded into a context, with memory for its variables.
struct Module {
    CUmodule handle = nullptr;
    Context *owner = nullptr;
    ProgramPtr program;
    std::vector<uintptr_t> variables;  // addresses, in the program's order
    std::vector<CUfunction> functions; // by index of the kernel; null until asked for
    bool of_library = false;
};

using ModulePtr = std::shared_ptr<Module>;

// What a program has set for cuLaunch and its like, which take it from the function.
struct OldLaunch {
    unsigned block[3] = {}; // zero: not said
    unsigned shared = 0;
    unsigned bytes = 0; // of the parameters
    std::vector<uint8_t> parameters;
};

struct KernelFunction {
    CUfunction handle = nullptr;
    Context *owner = nullptr;
    ModulePtr module;
    const ptx::Kernel *kernel = nullptr;
    KernelSettings settings;
    std::unique_ptr<OldLaunch> old_launch; // null: nothing set since the last launch by other means
};

using KernelFunctionPtr = std::shared_ptr<KernelFunction>;

ModulePtr find_module(CUmodule handle);
// Gives the variables memory, with what they hold at first.
CUresult load_module(const ContextPtr &context, const ProgramPtr &program, ModulePtr &module);
// Waits for the work of its context, which may use it.
void unload_module(Lock &lock, const ModulePtr &module);
// Forgets a module without its memory, which goes with the context.
void forget_module(const Module &module);
// -1 if there is none.
int find_kernel(const ptx::Program &program, const std::string &name);
int find_variable(const ptx::Program &program, const std::string &name);
// The function of a kernel, always the same one.
KernelFunctionPtr function_of(const ModulePtr &module, int kernel);
// How much of constant memory its variables take.
size_t constant_bytes(const ptx::Program &program);
// Of one block, without the dynamic part.
size_t static_shared(const ptx::Kernel &kernel);

// How many bytes of dynamic shared memory a launch may ask for.
size_t dynamic_shared_limit(const ptx::Kernel &kernel, const KernelSettings &settings);
// How many threads a block may have.
unsigned thread_limit(const ptx::Kernel &kernel);
// How many blocks a cluster has in a dimension, as the kernel says or was told; 0: nothing said.
int cluster_size(const ptx::Kernel &kernel, const KernelSettings &settings, int dimension);
CUresult read_function_attribute(const ptx::Program &program, const ptx::Kernel &kernel,
                                 const KernelSettings &settings, int attribute, int *value);
CUresult write_function_attribute(const ptx::Kernel &kernel, KernelSettings &settings,
                                  int attribute, int value);

} // namespace soft
