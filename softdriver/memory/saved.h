#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace soft {

// The bytes of all memory that existed at a time. Registered memory, and memory that other
// processes share, is not included.
class SavedMemory {
  public:
    void save();
    // Writes the bytes back into the memory that still exists.
    void restore() const;
    void clear() { saved_.clear(); }

  private:
    struct Saved {
        uintptr_t begin;
        uint64_t id; // of the allocation
        std::vector<char> bytes;
    };
    std::vector<Saved> saved_;
};

} // namespace soft
