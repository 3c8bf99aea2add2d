#include "base/functions.h"

#include <cstring>

namespace soft {

// SOFT_SECOND_<variant>(symbol) is the symbol for which stream 0 is the per-thread stream.
#define SOFT_SECOND_Plain(symbol) symbol
#define SOFT_SECOND_PerThreadStream(symbol) symbol##_ptsz
#define SOFT_SECOND_PerThreadDefault(symbol) symbol##_ptds

const FunctionInfo function_table[function_count] = {
#define SOFT_FUNCTION(base, version, symbol, variant, needs, callback)                             \
    {#base,                                                                                        \
     version,                                                                                      \
     #symbol,                                                                                      \
     Needs::needs,                                                                                 \
     Callback::callback,                                                                           \
     reinterpret_cast<void *>(&symbol),                                                            \
     reinterpret_cast<void *>(&SOFT_SECOND_##variant(symbol))},
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
