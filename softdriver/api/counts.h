#pragma once

#include <cstdint>

namespace soft {

// Returns the number of live objects of a kind, and ~0 if there is no such kind. Requires the lock
// of the state. README.md lists the kinds, at cudadrvSoftCount.
uint64_t count_objects(const char *kind);

} // namespace soft
