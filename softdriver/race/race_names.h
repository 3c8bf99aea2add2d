#pragma once

#include "base/waiting.h"

namespace soft {

// Asks the client for its names of the work and memory in new races, and of the memory in new
// hazards of kernels, then reports them.
// Called at the end of a driver call. Releases the lock while the client answers.
void name_races(Lock &lock);

} // namespace soft
