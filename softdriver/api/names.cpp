#include "api/names.h"

#include "api/logs.h"
#include "api/report.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>

// Exports every name of the driver API: clients look up hundreds of names, and some clients do not
// load if one is missing. The definitions in this file are weak, so that the definition of an
// implemented function replaces them. The file must not include cuda.h, which declares the same
// names with parameters. The C calling conventions allow the functions to ignore their arguments.

namespace soft {
namespace {

constexpr int not_supported = 801;

enum Name {
#define SOFT_NAME(symbol) name_##symbol,
#include "api/names.def"
#undef SOFT_NAME
    name_count
};

const char *const names[] = {
#define SOFT_NAME(symbol) #symbol,
#include "api/names.def"
#undef SOFT_NAME
};

std::atomic<uint64_t> counts[name_count];
std::atomic<uint64_t> total{0};

// NVIDIA's runtime library asks its driver for tables of functions that are not documented.
constexpr const char *about_runtime =
    "cudadrv software driver: a library in this program asks for private tables of NVIDIA's driver "
    "(cuGetExportTable), as the CUDA runtime does. The software driver has the documented driver "
    "API only, so it returns CUDA_ERROR_NOT_SUPPORTED. Programs of the CUDA runtime API (PyTorch, "
    "CuPy, JAX) need a GPU and NVIDIA's driver; programs of the driver API can go on.\n";

// Returns true if the code is part of NVRTC. NVRTC asks for a table when it compiles, but does not
// need it, so its users get no explanation.
bool is_in_compiler(const void *code) {
    Dl_info library;
    if (!dladdr(code, &library) || !library.dli_fname)
        return false;
    const char *slash = std::strrchr(library.dli_fname, '/');
    return !std::strncmp(slash ? slash + 1 : library.dli_fname, "libnvrtc", 8);
}

void explain_runtime() {
    static std::atomic_flag told = ATOMIC_FLAG_INIT;
    if (!told.test_and_set())
        std::fputs(about_runtime, stderr);
}

// `caller` is an address in the code that has called the function.
int count_call(Name name, const void *caller) {
    if (name == name_cuGetExportTable && !is_in_compiler(caller))
        explain_runtime();
    total.fetch_add(1, std::memory_order_relaxed);
    bool first = counts[name].fetch_add(1, std::memory_order_relaxed) == 0;
    note_unsupported(names[name], name, first);
    log_failed_call(names[name], not_supported);
    if (logs_are_due)
        tell_callbacks();
    return not_supported;
}

// Returns true if `name` is the symbol or one of its per-thread variants.
bool is_variant(const char *name, const char *symbol) {
    size_t length = std::strlen(symbol);
    if (std::strncmp(name, symbol, length) != 0)
        return false;
    const char *rest = name + length;
    return !*rest || !std::strcmp(rest, "_ptsz") || !std::strcmp(rest, "_ptds");
}

} // namespace

uint64_t unsupported_calls_of(const char *symbol) {
    uint64_t calls = 0;
    for (int i = 0; i < name_count; i++)
        if (is_variant(names[i], symbol))
            calls += counts[i];
    return calls;
}

uint64_t all_unsupported_calls() { return total; }

const char *unsupported_called(size_t index) {
    for (int i = 0; i < name_count; i++)
        if (counts[i] && index-- == 0)
            return names[i];
    return nullptr;
}

void forget_unsupported_calls() {
    for (auto &count : counts)
        count = 0;
    total = 0;
}

} // namespace soft

#define SOFT_NAME(symbol)                                                                          \
    extern "C" __attribute__((weak, visibility("default"))) int symbol(void) {                     \
        return soft::count_call(soft::name_##symbol, __builtin_return_address(0));                 \
    }
#include "api/names.def"
