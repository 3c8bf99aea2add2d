#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// Return the number of live objects of a kind, by its name (~0 if there is no such kind), or by its
// index. They require the lock of the state. README.md lists the kinds, at cudadrvSoftCount.
uint64_t count_objects(const char *kind);
uint64_t count_objects(size_t kind);

// Returns the name of the kind with this index, or null if the index is too large.
const char *kind_of_objects(size_t index);

} // namespace soft
