#pragma once

#include "base/race_clock.h"
#include "base/waiting.h"

#include <string>

struct cudadrvSoftWords;

namespace soft {

// Ask the client for its names of an operation, and of the memory at an address. Return false if
// the client cannot answer this thread. The name is empty if the client has none. The state lock
// must not be held.
bool name_operation(const cudadrvSoftWords &client, const RaceLabel &label, std::string &name);
// `made` is the line of the client that made the memory, if it is known. If the memory is freed,
// the line that closed it follows.
bool name_memory(const cudadrvSoftWords &client, uintptr_t address, bool freed, std::string &name,
                 std::string &made);

// Asks the client for its names of the work and memory in new races, in new hazards of kernels, and
// in an error of a kernel, then reports them.
// Called at the end of a driver call. Releases the lock while the client answers.
void name_races(Lock &lock);

} // namespace soft
