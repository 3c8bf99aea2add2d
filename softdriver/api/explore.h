#pragma once

// Functions that explore all orders in which a program's work can run. They are not part of the
// CUDA driver API. A client runs the program again and again: Start, then Begin, the program and
// End, until End says that nothing is left.
#include "base/cuda_api.h"

// Starts to explore. The bits of `how`: 1: equivalent orders are not left out; 2: the lines of the
// host's steps are looked for in each run, which takes longer than a short run.
SOFT_EXPORT int cudadrvSoftExploreStart(int how);
// Saves the bytes of all memory, which each run begins with.
SOFT_EXPORT int cudadrvSoftExploreSave(void);
// Begins the next run: restores the memory that was saved and still exists, and sets
// schedule=replay. With a script, the run follows this script, and with a seed it makes random
// choices; in both cases nothing is learned from it. Returns CUDA_ERROR_INVALID_VALUE if the text
// is not a script.
SOFT_EXPORT int cudadrvSoftExploreBegin(const char *script, unsigned long long seed);
// Ends the run, after all its work has run. Returns a JSON object: "script" of the run; "more":
// whether there is another order to run; "runs", "redundant"; "limits": why not all orders can be
// explored; "misfit": how the run differed from an earlier one with the same choices, or "";
// "failure": a wait that never ends, or "".
SOFT_EXPORT const char *cudadrvSoftExploreEnd(void);
// For a program that runs in a new process each time (see api/explore_process.h): Plan returns the
// plan of the next run; Learn takes the text of a finished run, and returns what End returns.
SOFT_EXPORT const char *cudadrvSoftExplorePlan(const char *script, unsigned long long seed);
SOFT_EXPORT const char *cudadrvSoftExploreLearn(const char *run);
// Returns a run's text as the JSON object of cudadrvSoftRun.
SOFT_EXPORT const char *cudadrvSoftExploreRead(const char *run);
// Stops exploring, and forgets the runs.
SOFT_EXPORT int cudadrvSoftExploreStop(void);
// Returns the run since Begin, or since schedule=replay was set, as a JSON object: "script",
// "steps" ("actor", "options", "name", "what", "stream", "reads", "writes", "after"), "limits",
// "misfit", "failure", "wait" (what the host waits for while nothing can run, or "").
SOFT_EXPORT const char *cudadrvSoftRun(void);
// Says what the thread's next queries of events and streams are for, until the next call: 0: the
// program wants the answer; 1: it will ask until they are done; 2: it only looks whether memory can
// be used again. Only an answer to the first kind of query is a choice that the search explores.
SOFT_EXPORT void cudadrvSoftAsks(int purpose);
// Returns whether runs follow a script (schedule=replay). What a host function causes should then
// be over when the function returns: the driver waits for that, so the run can be repeated.
SOFT_EXPORT int cudadrvSoftRepeats(void);
// Says that the host function that is running uses these bytes: others that use them are ordered
// with it. May be called by any thread while the driver waits for the function.
SOFT_EXPORT void cudadrvSoftUses(unsigned long long address, size_t bytes, int writes);
