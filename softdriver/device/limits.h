#pragma once

#include <cstddef>

namespace soft {

// The limits of a context, indexed by CUlimit.
struct Limits {
    Limits();
    size_t values[10] = {};
};

} // namespace soft
