#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// Returns how often the unimplemented function with this exported name was called; 0 for any other
// name.
uint64_t unsupported_calls_of(const char *symbol);
uint64_t all_unsupported_calls();
// Returns the name of the index-th unimplemented function that was called, or null if there are
// fewer.
const char *unsupported_called(size_t index);

} // namespace soft
