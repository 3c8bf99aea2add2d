#pragma once

#include "memory/location.h"

#include <cstddef>
#include <functional>
#include <map>
#include <set>

namespace soft {

struct Managed;

// The advice for a stretch of managed memory. It has no effect here, but programs can read it back.
struct Advice {
    bool read_mostly = false;
    CUmemLocation preferred = no_location, prefetched = no_location;
    std::set<unsigned> accessed_by; // device ordinals; CU_DEVICE_CPU sorts last
};

// The advice for each page of an allocation, by offset.
class AdviceMap {
  public:
    void change(size_t begin, size_t end, const std::function<void(Advice &)> &edit);
    void visit(size_t begin, size_t end, const std::function<void(const Advice &)> &look) const;

  private:
    // Splits the stretch that contains the offset, so that one begins there.
    std::map<size_t, Advice>::iterator split(size_t offset);

    // Keys are offsets; each stretch reaches to the next.
    std::map<size_t, Advice> stretches_{{0, Advice{}}};
};

// A range of whole pages of managed memory.
struct Pages {
    Managed *managed = nullptr;
    size_t begin = 0, end = 0; // offsets in the allocation
};

// Finds the pages of a range; an error unless all of it is managed memory.
CUresult find_pages(CUdeviceptr address, size_t bytes, Pages &pages);

} // namespace soft
