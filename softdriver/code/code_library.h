#pragma once

#include "code/modules.h"

#include <map>

namespace soft {

// A library (CUlibrary): code that belongs to no context. It is loaded as a module into each
// context that uses it.
struct CodeLibrary {
    CUlibrary handle = nullptr;
    ProgramPtr program;
    std::map<const Context *, ModulePtr> modules;
    // The handle of each kernel, by index. It is null until the program asks for it.
    std::vector<CUkernel> kernels;
};

using CodeLibraryPtr = std::shared_ptr<CodeLibrary>;

struct LibraryKernel {
    CUkernel handle = nullptr;
    CodeLibraryPtr library;
    int index = 0;
    // The attributes that the program has set, by device ordinal.
    std::map<int, KernelSettings> settings;

    const ptx::Kernel &kernel() const { return library->program->kernels[index]; }
};

using LibraryKernelPtr = std::shared_ptr<LibraryKernel>;

CodeLibraryPtr find_library(CUlibrary handle);
LibraryKernelPtr find_library_kernel(CUkernel handle);
// Returns the library's kernel with this index. Repeated calls return the same object.
LibraryKernelPtr kernel_of(const CodeLibraryPtr &library, int index);
// Returns the library's module in a context. Loads the module if the context does not have it yet.
CUresult module_of(const CodeLibraryPtr &library, const ContextPtr &context, ModulePtr &module);
// Returns the function that represents the kernel in a context. Loads the library into the context
// if necessary.
CUresult function_in(LibraryKernel &kernel, const ContextPtr &context, KernelFunctionPtr &function);
// Destroys all libraries. No context may have a module of a library any more.
void unload_libraries();

} // namespace soft
