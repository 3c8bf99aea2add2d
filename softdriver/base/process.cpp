#include "base/process.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace soft {
namespace {

// Returns the start time of a process, or 0 if it has ended.
uint64_t start_of(uint32_t pid) {
    char path[32], text[512];
    std::snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t size = read(file, text, sizeof(text) - 1);
    close(file);
    if (size <= 0)
        return 0;
    text[size] = 0;
    // The name of the process may contain spaces and parentheses. The state follows it.
    const char *field = std::strrchr(text, ')');
    if (!field || std::strlen(field) < 3 || field[2] == 'Z' || field[2] == 'X')
        return 0;
    for (int number = 2; number < 22 && field; number++)
        field = std::strchr(field + 1, ' ');
    return field ? std::strtoull(field, nullptr, 10) : 0;
}

} // namespace

ProcessId this_process() {
    static ProcessId known;
    auto pid = static_cast<uint32_t>(getpid());
    if (known.pid != pid)
        known = {pid, start_of(pid)};
    return known;
}

bool is_alive(const ProcessId &process) {
    return process.start && start_of(process.pid) == process.start;
}

int create_shared_file(const char *name, uint64_t bytes) {
    int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return -1;
    if (ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
        return file;
    close(file);
    return -1;
}

int open_shared_file(const ProcessId &owner, int file, const char *name, uint64_t bytes) {
    char path[48], target[256];
    std::snprintf(path, sizeof(path), "/proc/%u/fd/%d", owner.pid, file);
    // The numbers may be forged. Opening a file of another kind could block, or change something.
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length < 0)
        return -1;
    target[length] = 0;
    std::string expected = std::string("/memfd:") + name;
    if (std::strncmp(target, expected.c_str(), expected.size()) != 0 || !is_alive(owner))
        return -1;
    int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0)
        return -1;
    struct stat status;
    int seals = fcntl(opened, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(opened, &status) == 0 &&
        static_cast<uint64_t>(status.st_size) >= bytes)
        return opened;
    close(opened);
    return -1;
}

} // namespace soft
