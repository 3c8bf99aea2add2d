#pragma once

#include "code/modules.h"

namespace soft {

constexpr unsigned portable_cluster = 8, largest_cluster = 16; // in blocks

// How many blocks of this many threads fit into a multiprocessor at the same time.
int resident_blocks(const ptx::Kernel &kernel, unsigned threads, size_t dynamic_shared);
// The number of multiprocessors of the context's device.
int multiprocessors(const Context &context);

} // namespace soft
