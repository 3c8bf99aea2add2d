#pragma once

#include "base/waiting.h"

#include <string>

namespace soft {

struct State;

// A program that is run again and again as a process of its own, with the setting explore=FOLDER.
// The first process that calls the driver follows FOLDER/plan, and writes FOLDER/run when it exits.

// Called once, before the first call. Reads the plan.
void follow_plan(State &driver);
// Called at the end of each driver call. Asks the client for its words for the new steps, because
// it is too late for that when the process exits. Releases the lock while the client answers.
void name_new_steps(Lock &lock);
// Says what the host waits for while nothing can run; empty: something runs again. A process that
// is explored also writes this to FOLDER/wait, because it may be ended before it exits.
void tell_wait(const std::string &words);

} // namespace soft
