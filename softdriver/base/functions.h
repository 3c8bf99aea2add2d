#pragma once

#include "base/cuda_api.h"

#include <atomic>
#include <cstdint>

namespace soft {

// Every implemented function, from functions.def.
enum class Function {
#define SOFT_FUNCTION(base, version, symbol, variant, needs, callback) symbol,
#include "base/functions.def"
#undef SOFT_FUNCTION
    Count
};

constexpr int function_count = static_cast<int>(Function::Count);

// What must hold before a function is entered.
enum class Needs {
    Nothing,  // works before cuInit
    Init,     // cuInit has been called
    Current,  // there is a current context, be it destroyed
    Usable,   // there is one, and it is neither destroyed nor lost to a sticky error
    Optional, // no context is needed, but if there is one it must be usable
    Later,    // the body looks at its arguments first, then requires one of the above
};

enum class Callback { Refused, Allowed };

struct FunctionInfo {
    const char *base;
    int version;
    const char *symbol;
    Needs needs;
    Callback callback;
    void *plain;      // its default stream is the legacy one
    void *per_thread; // its default stream is the per-thread one; the same where it has none
};

extern const FunctionInfo function_table[function_count];

inline const FunctionInfo &info(Function function) {
    return function_table[static_cast<int>(function)];
}

// By exported name; Function::Count if there is none.
Function find_function(const char *symbol);

} // namespace soft
