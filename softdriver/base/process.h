#pragma once

#include <cstdint>

namespace soft {

// Identifies a process by its number and its start time, because the system reuses process numbers.
struct ProcessId {
    uint32_t pid = 0;
    uint64_t start = 0;

    bool operator==(const ProcessId &other) const {
        return pid == other.pid && start == other.start;
    }
    bool operator!=(const ProcessId &other) const { return !(*this == other); }
};

ProcessId this_process();
// Returns whether the process has not ended. A zombie has ended.
bool is_alive(const ProcessId &process);

// Creates a file in memory that other processes can open and that cannot shrink. Returns -1 if that
// fails.
int create_shared_file(const char *name, uint64_t bytes);
// Opens a file that another process has created with create_shared_file() under this name, if it
// has at least this size. Returns -1 if there is none.
int open_shared_file(const ProcessId &owner, int file, const char *name, uint64_t bytes);

} // namespace soft
