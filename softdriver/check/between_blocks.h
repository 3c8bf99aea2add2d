#pragma once

#include "check/shadow.h"

#include <functional>
#include <map>

// The accesses of blocks that do not communicate. Nothing orders such blocks, so any two accesses
// of different blocks to the same byte race, if one of them writes and they are not both atomic.
// They are compared when the launch ends: what is found depends neither on the order in which the
// blocks run nor on how many threads run them.

namespace soft::check {

// An access of lanes to a line, as a Span. Instead of the time, it has what a write has stored.
struct BlockAccess : Span {
    uint32_t value() const { return epoch; }
    bool stores_the_same(const BlockAccess &other) const;
};

// Two accesses that race. The first one is of the lower block.
struct BlockRace {
    BlockAccess first, second;
    unsigned first_lane = 0, second_lane = 0;
    uint64_t address = 0; // of what the second lane accesses
    bool benign = false;  // both store the same bytes
    uint64_t lines = 0;   // in how many lines the same two places race
};

class BetweenBlocks {
  public:
    void add(uint64_t line, const BlockAccess &access);
    // Takes over what another machine of the launch has seen.
    void join(BetweenBlocks &other);
    // The races, by both places and by whether they are benign. Of the races with equal places, the
    // one of the lowest blocks and threads is kept.
    using Races = std::map<std::tuple<uint32_t, uint32_t, bool>, BlockRace>;
    Races races() const;

  private:
    using Accesses = std::vector<BlockAccess>;
    static bool is_needless(const Accesses &all, const BlockAccess &access);
    static void compare(uint64_t line, const Accesses &all, Races &races);

    Pages<Accesses> lines_;
};

} // namespace soft::check
