#pragma once

#include <atomic>

namespace soft {

// The log of the driver, which programs read with cuLogsDumpToMemory and receive by callbacks. It
// contains every call that failed, and events that are also in reports: kernel errors, data races,
// images that cannot run, calls that are not supported.

// Adds a message. May be called with any lock held, because it calls no callback.
void log_failed_call(const char *symbol, int status) noexcept;

// True if callbacks have not received the last messages yet.
extern std::atomic<bool> logs_are_due;
// Passes the new messages to the callbacks. Must be called without any lock.
void tell_callbacks() noexcept;

} // namespace soft
