#pragma once

#include "memory/location.h"

#include <cstddef>
#include <functional>
#include <map>
#include <set>

namespace soft {

struct Managed;

// The advice for a stretch of managed memory. It has no effect in this driver, but programs can
// read it back.
struct Advice {
    bool read_mostly = false;
    CUmemLocation preferred = no_location, prefetched = no_location;
    std::set<unsigned> accessed_by; // ordinals of devices; CU_DEVICE_CPU, the host, is the greatest
};

// The advice for each page of an allocation, stored in stretches of pages that have the same
// advice.
class AdviceMap {
  public:
    void change(size_t begin, size_t end, const std::function<void(Advice &)> &edit);
    void visit(size_t begin, size_t end, const std::function<void(const Advice &)> &look) const;

  private:
    // Splits the stretch that contains the offset, so that a stretch begins at the offset, and
    // returns that stretch.
    std::map<size_t, Advice>::iterator split(size_t offset);

    // The stretches by the offset at which they begin. Each ends where the next one begins.
    std::map<size_t, Advice> stretches_{{0, Advice{}}};
};

// A range of whole pages of managed memory.
struct Pages {
    Managed *managed = nullptr;
    size_t begin = 0, end = 0; // as offsets in the allocation
};

// Finds the pages that contain a range. Returns an error if part of the range is not managed
// memory.
CUresult find_pages(CUdeviceptr address, size_t bytes, Pages &pages);

} // namespace soft
