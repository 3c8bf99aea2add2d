#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// True if the whole range is mapped, and writable if `to_write`. Only such memory can be
// page-locked.
bool is_mapped(uintptr_t begin, size_t bytes, bool to_write);

} // namespace soft
