#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace soft {

// A vector clock of the race detector. For the slot of each track (see RaceTrack) it has a number:
// the track's operations up to this number are ordered before the owner of the clock, which is an
// operation or the host.
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

// A clock that does not change, so that operations with equal clocks can share it.
using RaceClockPtr = std::shared_ptr<const RaceClock>;

struct RaceTrack;

// Two numbers by which a client identifies an operation.
struct RaceLabel {
    unsigned long long numbers[2] = {};

    bool known() const { return numbers[0] || numbers[1]; }
};

// The place of an operation in the partial order of all operations.
struct RaceMark {
    std::shared_ptr<const RaceTrack> track; // null if the detector ignores the operation
    uint64_t tick = 0;                      // the operation's number in its track
    RaceClockPtr before; // operations that are ordered before this one; null until they are known

    bool certain() const { return before != nullptr; }
    bool after(const RaceMark &other) const;
};

} // namespace soft
