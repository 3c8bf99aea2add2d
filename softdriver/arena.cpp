#include "arena.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

namespace soft {
namespace {

constexpr size_t alignment = 512;
constexpr size_t page = 4096;
constexpr size_t least_reservation = size_t(4) << 30;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

char *map(size_t bytes, int protection) {
    void *address = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1, 0);
    return address == MAP_FAILED ? nullptr : static_cast<char *>(address);
}

} // namespace

bool Arena::reserve(size_t capacity) {
    // As much quarantine as the machine grants: an address-space limit may allow less.
    for (size_t times : {64, 16, 4, 2}) {
        size_t bytes = round_up(std::max(capacity * times, least_reservation), page);
        char *device = map(bytes, PROT_NONE);
        char *alias = device ? map(bytes, PROT_READ | PROT_WRITE) : nullptr;
        if (device && !alias)
            munmap(device, bytes);
        if (!alias)
            continue;
        // A forked child may not use the driver, and core files need no gigabytes of nothing.
        madvise(alias, bytes, MADV_DONTFORK);
        madvise(alias, bytes, MADV_DONTDUMP);
        begin_ = cursor_ = reinterpret_cast<uintptr_t>(device);
        bytes_ = bytes;
        alias_ = alias;
        return true;
    }
    return false;
}

uintptr_t Arena::find_gap(size_t bytes) {
    for (int pass = 0; pass < 2; pass++) {
        auto next = taken_.lower_bound(cursor_);
        while (cursor_ + bytes <= begin_ + bytes_) {
            if (next == taken_.end() || cursor_ + bytes <= next->first)
                return cursor_;
            cursor_ = next->first + next->second;
            ++next;
        }
        cursor_ = begin_;
    }
    return 0;
}

uintptr_t Arena::allocate(size_t bytes) {
    if (bytes > bytes_)
        return 0;
    size_t rounded = round_up(bytes, alignment);
    uintptr_t address = find_gap(rounded);
    if (!address)
        return 0;
    cursor_ = address + rounded;
    taken_.emplace(address, rounded);
    std::memset(alias(address), fresh_memory, bytes);
    return address;
}

void Arena::release(uintptr_t address) { taken_.erase(address); }

// Gives back the pages that no live neighbour shares.
void Arena::discard(uintptr_t address, size_t bytes) {
    uintptr_t begin = address / page * page;
    uintptr_t end = round_up(address + bytes, page);
    auto next = taken_.lower_bound(address);
    if (next != taken_.end() && next->first < end)
        end -= page;
    if (next != taken_.begin()) {
        --next;
        if (next->first + next->second > begin)
            begin += page;
    }
    if (begin < end)
        madvise(alias(begin), end - begin, MADV_DONTNEED);
}

} // namespace soft
