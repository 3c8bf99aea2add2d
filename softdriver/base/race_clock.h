#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace soft {

// A vector clock: for each track's slot, the last operation that is known to be ordered before.
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

// Immutable, so operations with equal clocks share one.
using RaceClockPtr = std::shared_ptr<const RaceClock>;

struct RaceTrack;

// Two numbers by which a client identifies an operation.
struct RaceLabel {
    unsigned long long numbers[2] = {};

    bool known() const { return numbers[0] || numbers[1]; }
};

// The position of an operation in the order of all operations.
struct RaceMark {
    std::shared_ptr<const RaceTrack> track; // null: the detector ignores the operation
    uint64_t tick = 0;                      // its number in its track
    RaceClockPtr before; // operations ordered before it; null until they are known

    bool certain() const { return before != nullptr; }
    bool after(const RaceMark &other) const;
};

} // namespace soft
