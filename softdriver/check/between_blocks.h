#pragma once

#include "check/shadow.h"

#include <map>
#include <memory>
#include <vector>

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

// The accesses of blocks to a line, in segments. A kernel may access millions of lines, so the
// segments are in chunks of memory, which go back together.
class BlockAccesses {
    static constexpr unsigned segment_size = 4;
    struct Segment {
        Segment *next = nullptr;
        BlockAccess accesses[segment_size];
    };

  public:
    class Room {
      public:
        Segment *take();
        void join(Room &other);

      private:
        std::vector<std::unique_ptr<unsigned char[]>> chunks_;
        unsigned char *next_ = nullptr, *end_ = nullptr; // what is free in the last chunk
    };
    struct Iterator {
        Segment *segment;
        unsigned at;
        size_t left;

        BlockAccess &operator*() const { return segment->accesses[at]; }
        bool operator!=(const Iterator &other) const { return left != other.left; }
        Iterator &operator++() {
            left--;
            if (++at == segment_size)
                *this = {segment->next, 0, left};
            return *this;
        }
    };

    Iterator begin() const { return {first_, 0, count_}; }
    Iterator end() const { return {nullptr, 0, 0}; }
    size_t size() const { return count_; }
    BlockAccess &operator[](size_t i) const { return segment(i)->accesses[i % segment_size]; }
    void add(const BlockAccess &access, Room &room);
    void drop(size_t i); // the last one takes its place
    // Whether accesses of several blocks have been added, and a write.
    bool may_race() const { return writes_ && several_; }

  private:
    Segment *segment(size_t i) const;

    Segment *first_ = nullptr, *last_ = nullptr; // more may follow the last one that is used
    uint32_t count_ = 0;
    bool writes_ = false, several_ = false;
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
    using Accesses = BlockAccesses;
    static bool is_needless(const Accesses &all, const BlockAccess &access);
    static void compare(uint64_t line, const std::vector<BlockAccess> &all, Races &races);

    Pages<Accesses> lines_;
    Accesses::Room room_;
};

} // namespace soft::check
