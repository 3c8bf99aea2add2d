#pragma once

#include <functional>

namespace soft::ptx {

// Calls part(0) to part(count - 1), each once, in this thread and in helper threads, and returns
// when all calls have returned. The helper threads live as long as the process.
void run_together(unsigned count, const std::function<void(unsigned)> &part);

// Returns how many processors the process may use, at most `most_processors`.
unsigned usable_processors();
constexpr unsigned most_processors = 64;

} // namespace soft::ptx
