#pragma once

#include "code/modules.h"

#include <map>

namespace soft {

// Code that belongs to no context, and is loaded into those in which it is used.
struct CodeLibrary {
    CUlibrary handle = nullptr;
    ProgramPtr program;
    std::map<const Context *, ModulePtr> modules;
    std::vector<CUkernel> kernels; // by index; null until asked for
};

using CodeLibraryPtr = std::shared_ptr<CodeLibrary>;

struct LibraryKernel {
    CUkernel handle = nullptr;
    CodeLibraryPtr library;
    int index = 0;
    std::map<int, KernelSettings> settings; // by device

    const ptx::Kernel &kernel() const { return library->program->kernels[index]; }
};

using LibraryKernelPtr = std::shared_ptr<LibraryKernel>;

CodeLibraryPtr find_library(CUlibrary handle);
LibraryKernelPtr find_library_kernel(CUkernel handle);
// The kernel with an index, always the same one.
LibraryKernelPtr kernel_of(const CodeLibraryPtr &library, int index);
// Loads the library into a context, if that has not been done.
CUresult module_of(const CodeLibraryPtr &library, const ContextPtr &context, ModulePtr &module);
// The kernel in a context.
CUresult function_in(LibraryKernel &kernel, const ContextPtr &context, KernelFunctionPtr &function);
// All libraries go; no context has any of their modules.
void unload_libraries();
// A context goes, and what libraries have loaded there.
void leave_context(const Context &context);

} // namespace soft
