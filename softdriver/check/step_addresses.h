#pragma once

#include "check/places.h"

#include <array>

// The addresses of a step. Most steps access a few rows of items at equal distances.

namespace soft::check {

// Lanes whose addresses are at equal distances. If the distance is 0, they access the same bytes.
struct Run {
    uint64_t first = 0;  // the address of the lowest lane
    uint64_t stride = 0; // from each lane to the next one in `lanes`
    uint32_t lanes = 0;
    unsigned count = 0; // of lanes
};

class Addresses {
  public:
    // Finds what these lanes of a warp access in a step. There is at least one.
    void find(const ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect,
              uint32_t lanes);
    // Whether these are the addresses of these lanes in a step.
    bool is_of(const ptx::Step &step, uint32_t lanes) const {
        return step_ == &step && lanes_ == lanes;
    }
    void clear() { step_ = nullptr; }
    uint64_t operator[](unsigned lane) const { return addresses_[lane]; } // in its state space
    ptx::Space space(unsigned lane) const { return in_one_space_ ? space_ : spaces_[lane]; }
    // Whether all lanes access the same state space.
    bool in_one_space() const { return in_one_space_; }
    // The lanes in order, in runs.
    const Run *begin() const {
        if (!runs_count_)
            find_runs();
        return runs_.data();
    }
    const Run *end() const { return runs_.data() + runs_count_; }

  private:
    void find_spaces(uint32_t lanes);
    void find_runs() const;
    void find_runs_of_some() const;
    void find_runs_of_all() const;

    const ptx::Step *step_ = nullptr;
    uint32_t lanes_ = 0;
    // The entries after the last active lane have no meaning.
    std::array<uint64_t, ptx::warp_size + 1> addresses_{};
    mutable std::array<uint64_t, ptx::warp_size + 1> distances_{}; // from each lane to the next
    std::array<ptx::Space, ptx::warp_size> spaces_{};
    bool in_one_space_ = true;
    ptx::Space space_ = ptx::Space::Generic; // of all lanes
    bool is_regular_ = false;                // all lanes access one space at equal distances
    // Found when they are first needed; before that, the number is 0.
    mutable std::array<Run, ptx::warp_size> runs_;
    mutable size_t runs_count_ = 0;
};

} // namespace soft::check
