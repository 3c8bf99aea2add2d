#pragma once

#include "memory/location.h"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>

namespace soft {

struct Managed;

constexpr size_t page_bytes = 4096;
// A fault moves all pages of the aligned block around the address.
constexpr size_t block_bytes = 65536;

inline size_t whole_pages(size_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

// Processors are numbered: devices by their ordinals, and the host is CU_DEVICE_CPU.
constexpr int the_host = CU_DEVICE_CPU;
constexpr int nowhere = CU_DEVICE_INVALID;

// What the driver knows about a stretch of managed memory: the advice, and where the bytes are.
struct PageState {
    bool read_mostly = false;
    CUmemLocation preferred = no_location, prefetched = no_location;
    std::set<unsigned> accessed_by; // processors; as unsigned numbers, the host is the greatest
    // The processor in whose memory the bytes are; `nowhere` before the first use and after a
    // discard.
    int place = nowhere;
    std::set<int> copies; // other processors that have a copy which they may read
    uint64_t last_use = 0;

    bool is_at(int processor) const { return place == processor || copies.count(processor) > 0; }
    bool operator==(const PageState &other) const;
};

// The state of each page of an allocation, stored in stretches of pages that have the same state.
class PageMap {
  public:
    using Edit = std::function<void(size_t begin, size_t end, PageState &)>;
    using Look = std::function<void(size_t begin, size_t end, const PageState &)>;
    // Call the function for each stretch in a range, which is given as offsets in the allocation.
    void change(size_t begin, size_t end, const Edit &edit);
    void visit(size_t begin, size_t end, const Look &look) const;

  private:
    // Splits the stretch that contains the offset, so that a stretch begins at the offset, and
    // returns that stretch.
    std::map<size_t, PageState>::iterator split(size_t offset);
    void join(size_t begin, size_t end);

    // The stretches by the offset at which they begin. Each ends where the next one begins.
    std::map<size_t, PageState> stretches_{{0, PageState{}}};
};

// A range of whole pages of managed memory.
struct Pages {
    std::shared_ptr<Managed> managed;
    size_t begin = 0, end = 0; // as offsets in the allocation
};

// Finds the pages that contain a range. Returns an error if part of the range is not managed
// memory.
CUresult find_pages(CUdeviceptr address, size_t bytes, Pages &pages);

} // namespace soft
