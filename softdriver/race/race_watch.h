#pragma once

#include "race/race_shadow.h"

#include <functional>

namespace soft {

// Finds writes of the host to memory that a device operation reads or writes: the bytes are hashed
// when the operation is submitted, and must be the same when it starts, and until the host knows it
// done, but for what device operations write meanwhile.
class RaceWatches {
  public:
    // Called with the operation, its range, and what it does there.
    using Report =
        std::function<void(const Operation &, const RaceShadow &, const Range &, RaceUse)>;
    explicit RaceWatches(Report report) : report_(std::move(report)) {}

    void add(const OperationPtr &operation, const RaceShadowPtr &shadow, const Range &range,
             RaceUse use);
    // An operation starts and ends.
    void started(const OperationPtr &operation);
    void ended(const Operation &operation);
    // The host has learnt of the end of those that the predicate chooses.
    void learned(const std::function<bool(const Operation &)> &known);
    // Stops watching: what lies in an allocation, what shares bytes with a range, everything.
    void forget(const RaceShadow &shadow);
    void forget(const Range &range);
    void forget(const Operation &operation);
    void clear();
    bool empty() const { return watches_.empty(); }

  private:
    struct Watch {
        OperationPtr operation;
        RaceShadowPtr shadow;
        Range range;
        RaceUse use;
        bool hashed; // false while a device operation writes there
        uint64_t hash;
    };

    template <class Chosen> void drop(Chosen chosen);
    void hash(Watch &watch);
    // Reports it if the bytes have changed; false if so.
    bool intact(const Watch &watch) const;
    bool being_written(const Range &range) const;

    Report report_;
    std::vector<Watch> watches_;
    std::vector<OperationPtr> writers_; // that run now
};

} // namespace soft
