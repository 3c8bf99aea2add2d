#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace soft {

// Page-locked memory that other processes can map: pages of a file in memory. Unlike the pages of a
// device, they are in the file from the beginning, because the host may use them at any time. No
// part of the file is used twice, because a process may still have mapped the old bytes.
//
// A page follows the bytes of each allocation. While handles of the allocation are valid, this page
// contains the allocation's number.
class HostFile {
  public:
    static constexpr const char *name = "cudadrv-host";

    HostFile() = default;
    ~HostFile();
    HostFile(const HostFile &) = delete;
    HostFile &operator=(const HostFile &) = delete;

    // Maps fresh bytes. Returns null if the system has no more files, addresses or memory.
    char *allocate(size_t bytes);
    // Unmaps bytes that allocate() has returned. Other processes that have mapped them see zeros
    // from then on.
    void release(char *address);

    int number() const { return file_; }
    uint64_t offset_of(const char *address) const { return places_.at(address).offset; }
    // Makes handles of an allocation valid. Returns the offset of the number in the file, or 0 if
    // the system has no more memory.
    uint64_t publish(const char *address, uint64_t number);
    // Makes handles of the allocation invalid again.
    void withdraw(const char *address) { publish(address, 0); }

  private:
    struct Place {
        uint64_t offset;
        size_t bytes; // whole pages
    };

    int file_ = -1;
    uint64_t end_ = 0; // size of the file
    std::map<const char *, Place> places_;
};

// Maps bytes of such a file. Returns null if the system cannot.
char *map_host_file(int file, uint64_t offset, size_t bytes);

} // namespace soft
