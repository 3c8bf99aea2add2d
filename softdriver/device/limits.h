#pragma once

#include <cstddef>

namespace soft {

// The values that a context's limits have, by CUlimit.
struct Limits {
    Limits();
    size_t values[10] = {};
};

} // namespace soft
