#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace soft {

// The address space of one device's memory. The host cannot access these addresses; the driver
// accesses the bytes through an alias at a fixed distance. allocate() returns ascending addresses,
// and begins again at the first address only when the whole reservation has been used, so that a
// stale pointer stays invalid as long as possible. As on a GPU, large allocations begin with a
// block, and small ones lie in a block one after the other.
class Arena {
  public:
    static constexpr size_t page = 4096;
    static constexpr size_t block = size_t(2) << 20;
    // The name of the file in which shared memory is.
    static constexpr const char *file_name = "cudadrv-device";

    // Reserves address space for a device of this capacity. Returns false if the process cannot get
    // enough address space.
    bool reserve(size_t capacity);
    bool reserved() const { return begin_ != 0; }
    bool contains(uintptr_t address) const {
        return address >= begin_ && address - begin_ < bytes_;
    }

    // Returns whether allocate() would find free addresses.
    bool has_addresses(size_t bytes);
    // Allocates memory and fills it with the byte `fresh_memory`. Returns 0 if no address is free.
    uintptr_t allocate(size_t bytes);
    // Marks the addresses of an allocation as free, but keeps the bytes.
    void release(uintptr_t address);
    // Returns the memory at these addresses to the system. Other processes that have mapped it see
    // zeros from then on.
    void discard(uintptr_t address, size_t bytes);

    // Moves the pages of these bytes into a file that other processes can map. Nothing may use the
    // bytes meanwhile. Returns the file, or -1. In the file, the byte at an address is at
    // offset_of(address).
    int share(uintptr_t address, size_t bytes);
    uint64_t offset_of(uintptr_t address) const { return address - begin_; }
    // publish() writes a number into a table behind the bytes of that file, and returns the offset
    // of the number in the file, or 0 on failure. withdraw() sets the number at this offset to 0.
    uint64_t publish(uint64_t number);
    void withdraw(uint64_t place);
    // Maps bytes of such a file of another process. Returns the address of the byte at this offset
    // of the file, or 0 on failure.
    uintptr_t adopt(int file, uint64_t offset, size_t bytes);

    char *alias(uintptr_t address) const { return alias_ + (address - begin_); }

  private:
    // Finds free addresses. Returns 0 if there are none.
    uintptr_t find_gap(size_t bytes, size_t alignment);
    uintptr_t find_address(size_t bytes);
    void fill(uintptr_t address, size_t bytes);
    // Finds the pages that contain bytes of this range and no bytes of neighbouring allocations.
    void own_pages(uintptr_t address, size_t bytes, uintptr_t &begin, uintptr_t &end) const;

    uintptr_t begin_ = 0;
    size_t bytes_ = 0;
    char *alias_ = nullptr;
    uintptr_t cursor_ = 0;
    uintptr_t small_ = 0, small_end_ = 0; // the rest of the block for small allocations
    // Replaces the pages of the range that are in the file by private pages of this process. The
    // bytes in the file become zeros.
    void unshare(uintptr_t begin, uintptr_t end);
    // Replaces pages by private pages of this process, which contain zeros.
    void unmap(uintptr_t begin, uintptr_t end);

    std::map<uintptr_t, size_t> taken_;      // rounded size of each allocation, by address
    int file_ = -1;                          // the file that other processes can map, or -1
    std::map<uintptr_t, uintptr_t> shared_;  // page ranges in the file: end by beginning
    std::map<uintptr_t, uintptr_t> adopted_; // first page of adopted memory, by address
    std::vector<uint64_t> free_places_;      // free offsets in the table of the file
    uint64_t next_place_ = 0;
};

// Excludes the memory from core dumps, and from forked children, which cannot use the driver
// anyway.
void keep_private(char *alias, size_t bytes);

constexpr unsigned char fresh_memory = 0xCD;

// Maps fresh pages that use no memory until they are written. Returns null if there are no more
// addresses.
char *map_pages(size_t bytes, int protection);

} // namespace soft
