#pragma once

#include "code/modules.h"

namespace soft {

// The largest portable size and the largest size of clusters, in blocks.
constexpr unsigned portable_cluster = 8, largest_cluster = 16;

// Returns how many blocks of `threads` threads a multiprocessor can run at the same time.
int resident_blocks(const ptx::Kernel &kernel, unsigned threads, size_t dynamic_shared);
// Returns the number of multiprocessors of the context's device.
int multiprocessors(const Context &context);

} // namespace soft
