#include "memory/host_pages.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <sys/mman.h>

namespace soft {
namespace {

bool is_there(uintptr_t begin, size_t bytes) {
    // `chunk`: number of pages that one call of mincore() checks.
    constexpr size_t page = 4096, chunk = 4096;
    unsigned char resident[chunk];
    uintptr_t first = begin / page * page;
    size_t pages = (begin - first + (bytes - 1)) / page + 1;
    for (size_t done = 0; done < pages; done += chunk) {
        size_t length = std::min(chunk, pages - done) * page;
        if (mincore(reinterpret_cast<void *>(first + done * page), length, resident))
            return false;
    }
    return true;
}

// Returns true if /proc/self/maps shows that part of the range is not writable. Returns false if
// the file cannot be read.
bool is_read_only(uintptr_t begin, size_t bytes) {
    std::unique_ptr<FILE, int (*)(FILE *)> maps(std::fopen("/proc/self/maps", "re"), std::fclose);
    uintptr_t from, to;
    char rights[8];
    while (maps &&
           std::fscanf(maps.get(), "%" SCNxPTR "-%" SCNxPTR " %7s%*[^\n]", &from, &to, rights) == 3)
        if (from < begin + bytes && begin < to && rights[1] != 'w')
            return true;
    return false;
}

} // namespace

bool is_mapped(uintptr_t begin, size_t bytes, bool to_write) {
    return is_there(begin, bytes) && !(to_write && is_read_only(begin, bytes));
}

} // namespace soft
