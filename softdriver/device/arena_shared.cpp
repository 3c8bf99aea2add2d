#include "base/process.h"
#include "base/range.h"
#include "device/arena.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

// Device memory that several processes have mapped. A process moves the pages of the memory that it
// exports into a file in memory, which others map.

namespace soft {
namespace {

constexpr size_t table_bytes = size_t(1) << 20;

bool write_all(int file, const char *bytes, size_t count, uint64_t offset) {
    while (count) {
        ssize_t written = pwrite(file, bytes, count, static_cast<off_t>(offset));
        if (written <= 0)
            return false;
        bytes += written;
        offset += static_cast<uint64_t>(written);
        count -= static_cast<size_t>(written);
    }
    return true;
}

} // namespace

int Arena::share(uintptr_t address, size_t bytes) {
    if (file_ < 0)
        file_ = create_shared_file(file_name, bytes_ + table_bytes);
    if (file_ < 0)
        return -1;
    uintptr_t end = round_up(address + bytes, page);
    for (uintptr_t at = address / page * page; at < end;) {
        auto next = shared_.upper_bound(at);
        if (next != shared_.begin() && std::prev(next)->second > at) {
            at = std::prev(next)->second;
            continue;
        }
        uintptr_t stop = next == shared_.end() ? end : std::min(end, next->first);
        if (!write_all(file_, alias(at), stop - at, offset_of(at)) ||
            mmap(alias(at), stop - at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                 static_cast<off_t>(offset_of(at))) == MAP_FAILED)
            return -1;
        keep_private(alias(at), stop - at);
        shared_[at] = stop;
        at = stop;
    }
    return file_;
}

void Arena::unshare(uintptr_t begin, uintptr_t end) {
    auto next = shared_.upper_bound(begin);
    if (next != shared_.begin())
        --next;
    while (next != shared_.end() && next->first < end) {
        uintptr_t first = next->first, last = next->second;
        uintptr_t from = std::max(first, begin), to = std::min(last, end);
        if (from >= to) {
            ++next;
            continue;
        }
        unmap(from, to);
        fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(offset_of(from)), static_cast<off_t>(to - from));
        next = shared_.erase(next);
        if (first < from)
            shared_[first] = from;
        if (to < last)
            next = shared_.emplace(to, last).first;
    }
}

uint64_t Arena::publish(uint64_t number) {
    if (free_places_.empty()) {
        if (next_place_ == table_bytes / sizeof(number))
            return 0;
        free_places_.push_back(bytes_ + sizeof(number) * next_place_++);
    }
    uint64_t place = free_places_.back();
    if (pwrite(file_, &number, sizeof(number), static_cast<off_t>(place)) != sizeof(number))
        return 0;
    free_places_.pop_back();
    return place;
}

void Arena::withdraw(uint64_t place) {
    uint64_t nothing = 0;
    if (pwrite(file_, &nothing, sizeof(nothing), static_cast<off_t>(place)) == sizeof(nothing))
        free_places_.push_back(place);
}

uintptr_t Arena::adopt(int file, uint64_t offset, size_t bytes) {
    // The address is aligned in the same way as in the other process.
    uint64_t inside = offset % page;
    if (bytes > bytes_ || offset % block + bytes + 2 * block > bytes_)
        return 0;
    size_t length = round_up(inside + bytes, page), whole = round_up(offset % block + bytes, block);
    uintptr_t gap = find_gap(whole, block);
    if (!gap)
        return 0;
    uintptr_t first = gap + offset % block - inside;
    if (mmap(alias(first), length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
             static_cast<off_t>(offset - inside)) == MAP_FAILED) {
        unmap(first, first + length);
        return 0;
    }
    keep_private(alias(first), length);
    cursor_ = gap + whole;
    taken_.emplace(first, length);
    adopted_[first + inside] = first;
    return first + inside;
}

} // namespace soft
