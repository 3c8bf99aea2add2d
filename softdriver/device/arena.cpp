#include "device/arena.h"
#include "base/range.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace soft {
namespace {

constexpr size_t least_alignment = 512;
// Larger allocations have blocks of their own. An H200 also puts 1.5 MiB behind other memory of a
// block.
constexpr size_t largest_packed = Arena::block - least_alignment;
constexpr size_t least_reservation = size_t(4) << 30;
// Fresh allocations of at least this size map the pages of pattern_file(). Smaller ones are filled
// with memset.
constexpr size_t pattern_bytes = size_t(4) << 20;
constexpr int access = PROT_READ | PROT_WRITE;
constexpr size_t page = Arena::page;

// Returns a file that is filled with `fresh_memory`, or -1 if it cannot be created. A copy-on-write
// mapping of the file is fresh memory that uses no physical pages until a program writes to it.
int pattern_file() {
    static const int file = [] {
        int created = memfd_create("cudadrv-fresh", MFD_CLOEXEC);
        std::vector<unsigned char> pattern(pattern_bytes, fresh_memory);
        if (created >= 0 && write(created, pattern.data(), pattern_bytes) != ssize_t(pattern_bytes))
            return -1;
        return created;
    }();
    return file;
}

} // namespace

void keep_private(char *memory, size_t bytes) {
    madvise(memory, bytes, MADV_DONTFORK);
    madvise(memory, bytes, MADV_DONTDUMP);
}

char *map_pages(size_t bytes, int protection) {
    void *address =
        mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? nullptr : static_cast<char *>(address);
}

bool Arena::reserve(size_t capacity) {
    // The more address space the arena has, the later it reuses addresses. A limit of the process
    // may forbid a large reservation, so smaller ones are tried too.
    for (size_t times : {64, 16, 4, 2}) {
        size_t bytes = round_up(std::max(capacity * times, least_reservation), block);
        char *device = map_pages(bytes + block, PROT_NONE);
        char *alias = device ? map_pages(bytes, access) : nullptr;
        if (device && !alias)
            munmap(device, bytes + block);
        if (!alias)
            continue;
        keep_private(alias, bytes);
        begin_ = cursor_ = round_up(reinterpret_cast<uintptr_t>(device), block);
        bytes_ = bytes;
        alias_ = alias;
        return true;
    }
    return false;
}

uintptr_t Arena::find_gap(size_t bytes, size_t alignment) {
    for (int pass = 0; pass < 2; pass++) {
        cursor_ = round_up(cursor_, alignment);
        while (cursor_ + bytes <= begin_ + bytes_) {
            auto behind = taken_.lower_bound(cursor_ + bytes);
            if (behind == taken_.begin())
                return cursor_;
            auto [begin, size] = *std::prev(behind);
            if (begin + size <= cursor_)
                return cursor_;
            cursor_ = round_up(begin + size, alignment);
        }
        cursor_ = begin_;
        small_ = small_end_ = 0; // the rest of that block is free for all
    }
    return 0;
}

uintptr_t Arena::find_address(size_t bytes) {
    bool packed = bytes <= largest_packed;
    if (packed && bytes <= small_end_ - small_) {
        small_ += bytes;
        return small_ - bytes;
    }
    size_t whole = round_up(bytes, block);
    uintptr_t address = find_gap(whole, block);
    size_t used = whole;
    if (!address) { // no block is free as a whole
        address = find_gap(bytes, least_alignment);
        packed = false;
        used = bytes;
        if (!address)
            return 0;
    }
    cursor_ = address + used;
    if (packed) {
        small_ = address + bytes;
        small_end_ = address + whole;
    }
    return address;
}

bool Arena::has_addresses(size_t bytes) {
    size_t rounded = round_up(bytes, least_alignment);
    bool shares_block = rounded <= largest_packed && rounded <= small_end_ - small_;
    return shares_block || find_gap(round_up(rounded, block), block) ||
           find_gap(rounded, least_alignment);
}

uintptr_t Arena::allocate(size_t bytes) {
    if (bytes > bytes_)
        return 0;
    size_t rounded = round_up(bytes, least_alignment);
    uintptr_t address = find_address(rounded);
    if (!address)
        return 0;
    taken_.emplace(address, rounded);
    fill(address, bytes);
    return address;
}

void Arena::own_pages(uintptr_t address, size_t bytes, uintptr_t &begin, uintptr_t &end) const {
    begin = address / page * page;
    end = round_up(address + bytes, page);
    auto next = taken_.upper_bound(address);
    if (next != taken_.end() && next->first < end)
        end -= page;
    auto before = taken_.lower_bound(address);
    if (before != taken_.begin() && std::prev(before)->first + std::prev(before)->second > begin)
        begin += page;
}

void Arena::fill(uintptr_t address, size_t bytes) {
    uintptr_t begin, end;
    own_pages(address, bytes, begin, end);
    if (bytes < pattern_bytes || pattern_file() < 0)
        begin = end = address;
    for (uintptr_t at = begin; at < end; at += pattern_bytes) {
        size_t length = std::min(pattern_bytes, size_t(end - at));
        if (mmap(alias(at), length, access, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, pattern_file(),
                 0) == MAP_FAILED) {
            end = at;
            break;
        }
    }
    keep_private(alias(begin), end - begin);
    uintptr_t head = std::max(begin, address), tail = std::min(end, address + bytes);
    std::memset(alias(address), fresh_memory, head - address);
    std::memset(alias(tail), fresh_memory, address + bytes - tail);
}

void Arena::release(uintptr_t address) {
    auto adopted = adopted_.find(address);
    taken_.erase(adopted == adopted_.end() ? address : adopted->second);
}

// Returns the pages of the range to the system, except pages that contain bytes of a neighbouring
// allocation.
void Arena::discard(uintptr_t address, size_t bytes) {
    uintptr_t begin, end;
    own_pages(address, bytes, begin, end);
    if (adopted_.erase(address)) {
        unmap(address / page * page, round_up(address + bytes, page));
        return;
    }
    if (begin >= end)
        return;
    if (!shared_.empty())
        unshare(begin, end);
    if (bytes < pattern_bytes) {
        madvise(alias(begin), end - begin, MADV_DONTNEED);
        return;
    }
    unmap(begin, end);
}

void Arena::unmap(uintptr_t begin, uintptr_t end) {
    mmap(alias(begin), end - begin, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
         -1, 0);
    keep_private(alias(begin), end - begin);
}

} // namespace soft
