#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// Whether the process has mapped all of a range, and may write there if that is asked for: other
// memory cannot be page-locked.
bool is_mapped(uintptr_t begin, size_t bytes, bool to_write);

} // namespace soft
