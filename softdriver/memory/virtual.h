#pragma once

#include "base/range.h"
#include "device/device.h"

#include <deque>
#include <map>
#include <memory>

namespace soft {

struct Allocation;

// All sizes and addresses of virtual memory management must be multiples of this number.
constexpr size_t virtual_granularity = size_t(2) << 20;

// Memory that cuMemCreate has made, here or in another process. It has bytes but no address:
// mappings give it addresses. It lives until the program has released its handle and unmapped all
// of it.
struct Backing {
    // `made_here` says that this process has made the memory, so that it counts against the
    // capacity of the device.
    Backing(Device &on, size_t size, const CUmemAllocationProp &wanted, bool made_here);
    ~Backing();
    Backing(const Backing &) = delete;
    Backing &operator=(const Backing &) = delete;

    // Creates the file and fills it with `fresh_memory`. Returns false if the system has no more
    // files or memory.
    bool fill();

    Device *const device;
    const size_t bytes;
    CUmemAllocationProp properties;
    const bool made_here;
    CUmemGenericAllocationHandle handle = 0;
    int file = -1;           // has the bytes; each mapping shares them
    unsigned references = 1; // held by the program: one for each creation, retain and import
    unsigned mappings = 0;
    const uint64_t id;
};

using BackingPtr = std::shared_ptr<Backing>;

// Finds memory by its handle. Returns null if the program has released all references to it.
BackingPtr find_backing(CUmemGenericAllocationHandle handle);

// Writes a description of the memory, for other processes, behind the bytes in its file. Returns
// false if the system has no more memory.
bool describe_backing(const Backing &backing);
// Returns the size of that description in bytes.
size_t description_bytes();

struct Mapping {
    size_t bytes;
    BackingPtr backing;
    // The access of each device, by its ordinal. A device without an entry may not use the memory.
    std::map<int, int> access = {};
};

// The mappings of an Allocation of reserved addresses (cuMemAddressReserve). As in an Arena, the
// driver accesses the memory at hidden addresses of the host at a fixed distance, so a copy may
// cross the border between two mappings.
class Reservation {
  public:
    Reservation(uintptr_t begin, char *host) : begin_(begin), host_(host) {}

    // Maps the beginning of `backing`. Returns false if the system cannot.
    bool map(uintptr_t address, size_t bytes, const BackingPtr &backing);
    // Removes all mappings in a range. No mapping may lie only partly in it.
    void unmap(const Range &range);
    // Sets the access of a device to a range that consists of whole mappings.
    void set_access(const Range &range, int device, int flags);

    bool empty() const { return mappings_.empty(); }
    // Returns the mapping that contains the address, and sets *begin to its first address. Returns
    // null if nothing is mapped there.
    const Mapping *find(uintptr_t address, uintptr_t *begin = nullptr) const;
    // Returns the last mapping that begins before the address or at it, or null.
    const Mapping *before(uintptr_t address, uintptr_t *begin) const;
    // Returns true if none of the bytes has memory.
    bool is_free(const Range &range) const;
    // Returns true if all bytes have memory.
    bool covers(uintptr_t begin, size_t bytes) const;
    // Returns true if the range consists of whole mappings, without gaps.
    bool is_whole(const Range &range) const;
    // Returns true if no mapping lies partly in the range and partly outside.
    bool cuts_none(const Range &range) const;
    // Returns whether the device may read all bytes; with `writes`, whether it may write them.
    bool admits(int device, uintptr_t begin, size_t bytes, bool writes) const;
    // Returns the largest range around an address that the device may read, and sets *writable if
    // it may also write all of that. The range is empty if the device may not read the address.
    Range reach(int device, uintptr_t address, bool *writable) const;

  private:
    const uintptr_t begin_;
    char *const host_;
    std::map<uintptr_t, Mapping> mappings_;
};

// Addresses that were reserved and freed. They stay unusable for a while, so that stale pointers
// are found.
class FreedAddresses {
  public:
    void add(uintptr_t begin, size_t bytes);
    bool contains(uintptr_t address) const;

  private:
    std::deque<Range> ranges_;
    size_t bytes_ = 0;
};

// Describes an address in reserved addresses.
std::string describe_reserved(uintptr_t address, const Allocation &reserved, uintptr_t &live);
// Frees all reservations and all memory that cuMemCreate has made. No work may use them.
void destroy_reservations();

} // namespace soft
