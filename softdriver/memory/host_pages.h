#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// Returns true if the process has mapped the whole range and, with `to_write`, can write to it.
// Only such memory can be page-locked.
bool is_mapped(uintptr_t begin, size_t bytes, bool to_write);

} // namespace soft
