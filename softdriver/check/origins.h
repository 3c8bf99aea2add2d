#pragma once

#include "check/hazards.h"

#include <mutex>

namespace soft::check {

// Where kernels have first read undefined values. Each place has a number, from 1 on, by which
// registers and memory (base/undefined.h) refer to it.
struct Origin {
    std::string memory;    // such as "shared memory 'tile'"
    uintptr_t address = 0; // of global memory, for which the client may have a name
    uint64_t start = 0, stop = 0;
    HazardAccess read;
    bool is_shared = false, is_local = false;
};

class Origins {
  public:
    // Returns the number of the origin at a PTX line of a kernel, in a memory. `make` is called if
    // it is new. There are at most `most` origins; the others share the last number.
    uint32_t add(const std::string &kernel, int ptx_line, const std::string &memory,
                 const std::function<Origin()> &make);
    Origin operator[](uint32_t number) const;

  private:
    static constexpr size_t most = 100000;
    mutable std::mutex mutex_;
    std::map<std::tuple<std::string, int, std::string>, uint32_t> known_;
    std::deque<Origin> all_;
};

Origins &origins();

} // namespace soft::check
