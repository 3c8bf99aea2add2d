#pragma once

#include "base/waiting.h"

namespace soft {

// Lets the client name its work in the races that were found, before they are told. At the end of a
// call, by a thread of the program; drops the lock meanwhile.
void name_races(Lock &lock);

} // namespace soft
