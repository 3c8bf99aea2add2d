#pragma once

#include "race/race_shadow.h"

#include <functional>

namespace soft {

// Finds writes of the host to memory that a device operation uses. The bytes are hashed when the
// operation is submitted, and compared with the hash when the operation starts and when the host
// knows that it is done. Bytes that other device operations write in between are not compared.
class RaceHostWrites {
  public:
    // Called for each such write: with the operation, the memory, the range, and how the operation
    // uses the range.
    using Report =
        std::function<void(const Operation &, const RaceShadow &, const Range &, RaceUse)>;
    explicit RaceHostWrites(Report report) : report_(std::move(report)) {}

    void add(const OperationPtr &operation, const RaceShadowPtr &shadow, const Range &range,
             RaceUse use);
    // Call these when an operation starts and when it ends.
    void started(const OperationPtr &operation);
    void ended(const Operation &operation);
    // Call this when the host has learned that more operations are done. `known` returns true for
    // every operation that the host knows to be done.
    void learned(const std::function<bool(const Operation &)> &known);
    // Stop watching: all ranges in an allocation, all ranges that overlap a range, all ranges of an
    // operation, or all ranges.
    void remove(const RaceShadow &shadow);
    void remove(const Range &range);
    void remove(const Operation &operation);
    void clear();
    bool empty() const { return watches_.empty(); }

  private:
    struct Watch {
        OperationPtr operation;
        RaceShadowPtr shadow;
        Range range;
        RaceUse use;
        bool hashed; // false while a device operation writes the range, so that there is no hash
        uint64_t hash;
    };

    template <class Chosen> void drop(Chosen chosen);
    void hash(Watch &watch);
    // Returns true if the bytes still have the same hash. Otherwise reports a race and returns
    // false.
    bool intact(const Watch &watch) const;
    bool being_written(const Range &range) const;

    Report report_;
    std::vector<Watch> watches_;
    std::vector<OperationPtr> writers_; // running operations whose ranges include writes
};

} // namespace soft
