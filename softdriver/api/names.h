#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// Returns how often programs have called the unimplemented function with this exported name.
// Returns 0 for any other name.
uint64_t unsupported_calls_of(const char *symbol);
uint64_t all_unsupported_calls();
// Returns the name of the unimplemented function with this index among those that programs have
// called. Returns null if the index is too large.
const char *unsupported_called(size_t index);
// Called in a child that was forked.
void forget_unsupported_calls();

} // namespace soft
