#include "api/call.h"
#include "api/state.h"

#include <algorithm>
#include <cstring>

// SOFT_SECOND_<variant>(symbol) is the symbol for which stream 0 is the per-thread stream.
#define SOFT_SECOND_Plain(symbol) symbol
#define SOFT_SECOND_PerThreadStream(symbol) symbol##_ptsz
#define SOFT_SECOND_PerThreadDefault(symbol) symbol##_ptds

namespace soft {
namespace {

// The addresses of a function's two symbols: in `plain`, stream 0 means the legacy stream, and in
// `per_thread` the per-thread stream. They are equal if the function has only one symbol.
struct Addresses {
    void *plain;
    void *per_thread;
};

const Addresses addresses[function_count] = {
#define SOFT_FUNCTION(base, version, symbol, variant, needs, callback)                             \
    {reinterpret_cast<void *>(&symbol), reinterpret_cast<void *>(&SOFT_SECOND_##variant(symbol))},
#include "base/functions.def"
#undef SOFT_FUNCTION
};

const Addresses &addresses_of(const FunctionInfo &function) {
    return addresses[&function - function_table];
}

// Returns the first CUDA version in which this variant of the function exists.
unsigned first_version(const FunctionInfo &function, bool per_thread) {
    constexpr int per_thread_streams = 7000;
    const Addresses &found = addresses_of(function);
    bool variant = per_thread && found.per_thread != found.plain;
    return std::max(function.version, variant ? per_thread_streams : 0);
}

CUdriverProcAddressQueryResult look_up(const char *name, unsigned version, bool per_thread,
                                       void **address) {
    const FunctionInfo *best = nullptr;
    bool known = false;
    for (const FunctionInfo &function : function_table) {
        if (std::strcmp(function.base, name) != 0 || function.version > state().settings.driver)
            continue;
        known = true;
        if (first_version(function, per_thread) <= version &&
            (!best || function.version > best->version))
            best = &function;
    }
    if (best)
        *address = per_thread ? addresses_of(*best).per_thread : addresses_of(*best).plain;
    // cuGetExportTable is not implemented, but a call of it explains why (names.cpp). Without its
    // address the CUDA runtime would only say that the driver is too old.
    if (std::strcmp(name, "cuGetExportTable") == 0 && version >= 3000) {
        *address = reinterpret_cast<void *>(&cuGetExportTable);
        return CU_GET_PROC_ADDRESS_SUCCESS;
    }
    return best    ? CU_GET_PROC_ADDRESS_SUCCESS
           : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                   : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

} // namespace

SOFT_API(cuGetProcAddress_v2,
         (const char *name, void **address, int version, cuuint64_t flags,
          CUdriverProcAddressQueryResult *result),
         (name, address, version, flags, result)) {
    constexpr cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!address || (flags & ~known) || version > state().settings.driver)
        return CUDA_ERROR_INVALID_VALUE;
    *address = nullptr;
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    // look_up() converts the version to unsigned, so a negative version means no limit.
    CUdriverProcAddressQueryResult found = look_up(name ? name : "", version, per_thread, address);
    if (result)
        *result = found;
    return CUDA_SUCCESS;
}

// The first version of cuGetProcAddress has no result parameter. It reports a missing symbol by an
// error.
SOFT_API(cuGetProcAddress, (const char *name, void **address, int version, cuuint64_t flags),
         (name, address, version, flags)) {
    CUresult status = cuGetProcAddress_v2_body(call, name, address, version, flags, nullptr);
    return status == CUDA_SUCCESS && !*address ? CUDA_ERROR_NOT_FOUND : status;
}

} // namespace soft
