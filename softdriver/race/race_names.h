#pragma once

#include "base/waiting.h"

namespace soft {

// Asks the client for its names of the work and memory in the new races, then reports these races.
// Called at the end of a driver call, by a thread of the program. Releases the lock while it asks.
void name_races(Lock &lock);

} // namespace soft
