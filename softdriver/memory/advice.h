#pragma once

#include "memory/location.h"

#include <cstddef>
#include <functional>
#include <map>
#include <set>

namespace soft {

struct Managed;

// What a program has said about a stretch of managed memory. It has no effect here, but can be
// asked for.
struct Advice {
    bool read_mostly = false;
    CUmemLocation preferred = no_location, prefetched = no_location;
    std::set<unsigned> accessed_by; // ordinals; CU_DEVICE_CPU, if there, is the last
};

// The advice for each page of an allocation, by offset.
class AdviceMap {
  public:
    void change(size_t begin, size_t end, const std::function<void(Advice &)> &edit);
    void visit(size_t begin, size_t end, const std::function<void(const Advice &)> &look) const;

  private:
    // Makes a stretch begin at an offset.
    std::map<size_t, Advice>::iterator split(size_t offset);

    std::map<size_t, Advice> stretches_{{0, Advice{}}}; // each reaches to the next
};

// A range of managed memory, in whole pages.
struct Pages {
    Managed *managed = nullptr;
    size_t begin = 0, end = 0; // offsets
};

// An error unless all of the range is managed memory.
CUresult find_pages(CUdeviceptr address, size_t bytes, Pages &pages);

} // namespace soft
