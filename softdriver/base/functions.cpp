#include "base/functions.h"

#include <cstring>

namespace soft {

const FunctionInfo function_table[function_count] = {
#define SOFT_FUNCTION(base, version, symbol, variant, needs, callback)                             \
    {#base, version, #symbol, Needs::needs, Callback::callback},
#include "base/functions.def"
#undef SOFT_FUNCTION
};

Function find_function(const char *symbol) {
    for (int i = 0; i < function_count; i++)
        if (!std::strcmp(function_table[i].symbol, symbol))
            return static_cast<Function>(i);
    return Function::Count;
}

} // namespace soft
