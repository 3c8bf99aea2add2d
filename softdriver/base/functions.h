#pragma once

#include "base/cuda_api.h"

#include <atomic>
#include <cstdint>

namespace soft {

// A value for each implemented function. functions.def has a line for each of these functions.
enum class Function {
#define SOFT_FUNCTION(base, version, symbol, variant, needs, callback) symbol,
#include "base/functions.def"
#undef SOFT_FUNCTION
    Count
};

constexpr int function_count = static_cast<int>(Function::Count);

// The precondition of a function. If it does not hold, the call returns an error and the body does
// not run.
enum class Needs {
    Nothing,  // no precondition: the function works before cuInit
    Init,     // cuInit has succeeded
    Current,  // there is a current context, which may have been destroyed
    Usable,   // the current context is neither destroyed nor lost to a sticky error
    Optional, // like Usable if there is a current context; without one, like Init
    Later,    // the body checks its arguments first, and then calls Call::require()
};

enum class Callback { Refused, Allowed };

struct FunctionInfo {
    const char *base;
    int version;
    const char *symbol;
    Needs needs;
    Callback callback;
};

extern const FunctionInfo function_table[function_count];

inline const FunctionInfo &info(Function function) {
    return function_table[static_cast<int>(function)];
}

// Finds a function by its exported name. Returns Function::Count if there is none.
Function find_function(const char *symbol);

} // namespace soft
