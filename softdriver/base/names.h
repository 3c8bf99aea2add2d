#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// How often an unimplemented function was called, by exported name; 0 for other names.
uint64_t unsupported_calls_of(const char *symbol);
uint64_t all_unsupported_calls();
// The name of the index-th unimplemented function that was called, or null.
const char *unsupported_called(size_t index);

} // namespace soft
