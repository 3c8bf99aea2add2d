#pragma once

#include "context.h"
#include "cuda_api.h"
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
};

using KernelSettingsPtr = std::shared_ptr<KernelSettings>;

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

struct KernelFunction {
    CUfunction handle = nullptr;
    Context *owner = nullptr;
    ModulePtr module;
    const ptx::Kernel *kernel = nullptr;
    KernelSettingsPtr settings;
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
KernelFunctionPtr function_of(const ModulePtr &module, int kernel, KernelSettingsPtr settings);

// How many bytes of dynamic shared memory a launch may ask for.
size_t dynamic_shared_limit(const ptx::Kernel &kernel, const KernelSettings &settings);
// How many threads a block may have.
unsigned thread_limit(const ptx::Kernel &kernel);
CUresult read_function_attribute(const ptx::Program &program, const ptx::Kernel &kernel,
                                 const KernelSettings &settings, int attribute, int *value);
CUresult write_function_attribute(const ptx::Kernel &kernel, KernelSettings &settings,
                                  int attribute, int value);

} // namespace soft
