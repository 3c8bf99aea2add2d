#include "memory/host_pages.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

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

// Returns true if part of the range lacks a right: in /proc/self/maps, the letter at `index` of its
// rights is not `right`. Returns false if that file cannot be read.
bool lacks(uintptr_t begin, size_t bytes, int index, char right) {
    std::unique_ptr<FILE, int (*)(FILE *)> maps(std::fopen("/proc/self/maps", "re"), std::fclose);
    uintptr_t from, to;
    char rights[8];
    while (maps &&
           std::fscanf(maps.get(), "%" SCNxPTR "-%" SCNxPTR " %7s%*[^\n]", &from, &to, rights) == 3)
        if (from < begin + bytes && begin < to && rights[index] != right)
            return true;
    return false;
}

} // namespace

bool is_mapped(uintptr_t begin, size_t bytes, bool to_write) {
    return is_there(begin, bytes) && !(to_write && lacks(begin, bytes, 1, 'w'));
}

bool is_shared(uintptr_t begin, size_t bytes) { return lacks(begin, bytes, 3, 'p'); }

namespace {

int page_table() {
    static const int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    return file;
}

} // namespace

bool sees_page_table() {
    uint64_t entry;
    auto here = static_cast<off_t>(reinterpret_cast<uintptr_t>(&entry) / 4096 * sizeof(entry));
    return pread(page_table(), &entry, sizeof(entry), here) == sizeof(entry);
}

void visit_present(const char *begin, size_t pages, const std::function<void(size_t)> &visit) {
    constexpr size_t page = 4096, chunk = 4096;
    constexpr uint64_t present = uint64_t(1) << 63;
    uint64_t entries[chunk];
    size_t first = reinterpret_cast<uintptr_t>(begin) / page;
    for (size_t done = 0; done < pages; done += chunk) {
        size_t count = std::min(chunk, pages - done), size = count * sizeof(uint64_t);
        auto offset = static_cast<off_t>((first + done) * sizeof(uint64_t));
        if (pread(page_table(), entries, size, offset) != static_cast<ssize_t>(size))
            return;
        for (size_t i = 0; i < count; i++)
            if (entries[i] & present)
                visit(done + i);
    }
}

} // namespace soft
