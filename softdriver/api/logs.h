#pragma once

#include <atomic>
#include <string>

namespace soft {

// The log of the driver: what programs get by cuLogsDumpToMemory and by callbacks. It has every
// call that failed, and what reports have: kernel errors, data races, images that cannot run, calls
// that are not supported.

enum class Level { Error, Warning };

// Adds a message. May be called with any lock held, because it calls nobody.
void log_message(Level level, const std::string &text) noexcept;
void log_failed_call(const char *symbol, int status) noexcept;

// True if callbacks have not been told of the last messages yet.
extern std::atomic<bool> logs_are_due;
// Tells the callbacks. Call it without any lock.
void tell_callbacks() noexcept;

} // namespace soft
