#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// Returns how often programs have called the unimplemented function with this exported name.
// Returns 0 for any other name.
uint64_t unsupported_calls_of(const char *symbol);
uint64_t all_unsupported_calls();
// An unimplemented function that programs have called, and how often under exactly this name.
struct UnsupportedCalls {
    const char *symbol = nullptr;
    uint64_t calls = 0;
};
// Returns the one with this index; its symbol is null if there are not so many.
UnsupportedCalls unsupported_called(size_t index);
// Called in a child that was forked.
void forget_unsupported_calls();

} // namespace soft
