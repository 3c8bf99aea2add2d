#pragma once

#include "code/modules.h"

#include <map>

namespace soft {

// Code that belongs to no context (CUlibrary). It is loaded as a module into each context that uses
// it.
struct CodeLibrary {
    CUlibrary handle = nullptr;
    ProgramPtr program;
    std::map<const Context *, ModulePtr> modules;
    std::vector<CUkernel> kernels; // handles by index of the kernel; null until first requested
};

using CodeLibraryPtr = std::shared_ptr<CodeLibrary>;

struct LibraryKernel {
    CUkernel handle = nullptr;
    CodeLibraryPtr library;
    int index = 0;
    std::map<int, KernelSettings> settings; // settings of the kernel, by ordinal of the device

    const ptx::Kernel &kernel() const { return library->program->kernels[index]; }
};

using LibraryKernelPtr = std::shared_ptr<LibraryKernel>;

CodeLibraryPtr find_library(CUlibrary handle);
LibraryKernelPtr find_library_kernel(CUkernel handle);
// Returns the library's kernel with this index: the same object at every call.
LibraryKernelPtr kernel_of(const CodeLibraryPtr &library, int index);
// Returns the library's module in a context. Loads the module at the first call.
CUresult module_of(const CodeLibraryPtr &library, const ContextPtr &context, ModulePtr &module);
// Returns the function that stands for the kernel in a context. Loads the library into the context
// if necessary.
CUresult function_in(LibraryKernel &kernel, const ContextPtr &context, KernelFunctionPtr &function);
// Destroys all libraries. Call it only when no context has a module of a library.
void unload_libraries();
// Called when a context is destroyed. Removes the modules that libraries have loaded into it.
void leave_context(const Context &context);

} // namespace soft
