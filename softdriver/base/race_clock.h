#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace soft {

// A vector clock: for each track (a stream's slot) up to which of its operations somebody is
// ordered.
class RaceClock {
  public:
    uint64_t at(size_t slot) const { return slot < ticks_.size() ? ticks_[slot] : 0; }

    bool covers(const RaceClock &other) const {
        for (size_t slot = 0; slot < other.ticks_.size(); slot++)
            if (other.ticks_[slot] > at(slot))
                return false;
        return true;
    }

    void raise(size_t slot, uint64_t tick) {
        if (slot >= ticks_.size())
            ticks_.resize(slot + 1);
        ticks_[slot] = std::max(ticks_[slot], tick);
    }

    void join(const RaceClock &other) {
        for (size_t slot = 0; slot < other.ticks_.size(); slot++)
            if (other.ticks_[slot] > at(slot))
                raise(slot, other.ticks_[slot]);
    }

  private:
    std::vector<uint64_t> ticks_;
};

using RaceClockPtr = std::shared_ptr<const RaceClock>; // shared by all to whom nothing new happened

struct RaceTrack;

// By which a client knows an operation: two numbers of its choice.
struct RaceLabel {
    unsigned long long numbers[2] = {};

    bool known() const { return numbers[0] || numbers[1]; }
};

// An operation's place in the order of things.
struct RaceMark {
    std::shared_ptr<const RaceTrack> track; // null: the detector does not know the operation
    uint64_t tick = 0;                      // its number in its track
    RaceClockPtr before;                    // all that it is ordered after; null while not certain

    bool certain() const { return before != nullptr; }
    bool after(const RaceMark &other) const;
};

} // namespace soft
