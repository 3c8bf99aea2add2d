#pragma once

#include "base/waiting.h"

namespace soft {

// Asks the client for its names in the new races, then reports these races. Called at the end of a
// driver call, by a thread of the program; releases the lock meanwhile.
void name_races(Lock &lock);

} // namespace soft
