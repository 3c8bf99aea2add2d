#include "memory/host_file.h"

#include "base/process.h"
#include "base/range.h"
#include "device/arena.h"

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace soft {

char *map_host_file(int file, uint64_t offset, size_t bytes) {
    void *address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
    return address == MAP_FAILED ? nullptr : static_cast<char *>(address);
}

HostFile::~HostFile() {
    if (file_ >= 0)
        close(file_);
}

char *HostFile::allocate(size_t bytes) {
    if (file_ < 0 && (file_ = create_shared_file(name, 0)) < 0)
        return nullptr;
    Place place{end_, round_up(bytes, Arena::page)};
    uint64_t end = end_ + place.bytes + Arena::page;
    if (ftruncate(file_, static_cast<off_t>(end)) != 0)
        return nullptr;
    end_ = end;
    char *address = map_host_file(file_, place.offset, bytes);
    if (!address)
        return nullptr;
    std::memset(address, fresh_memory, bytes);
    places_.emplace(address, place);
    return address;
}

void HostFile::release(char *address) {
    Place place = places_.at(address);
    places_.erase(address);
    munmap(address, place.bytes);
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(place.offset),
              static_cast<off_t>(place.bytes + Arena::page));
}

uint64_t HostFile::publish(const char *address, uint64_t number) {
    const Place &place = places_.at(address);
    uint64_t behind = place.offset + place.bytes;
    bool written =
        pwrite(file_, &number, sizeof(number), static_cast<off_t>(behind)) == sizeof(number);
    return written ? behind : 0;
}

} // namespace soft
