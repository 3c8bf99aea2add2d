#pragma once

#include "race/race_shadow.h"

#include <functional>

namespace soft {

// Finds writes of the host to memory that a device operation uses. It hashes the bytes when the
// operation is submitted, and compares them when the operation starts and when the host knows that
// it is done. Bytes that other device operations write in between are not compared.
class RaceWatches {
  public:
    // A function that is called for each such write: with the operation, its range, and how the
    // operation uses the range.
    using Report =
        std::function<void(const Operation &, const RaceShadow &, const Range &, RaceUse)>;
    explicit RaceWatches(Report report) : report_(std::move(report)) {}

    void add(const OperationPtr &operation, const RaceShadowPtr &shadow, const Range &range,
             RaceUse use);
    // Call these when an operation starts and when it ends.
    void started(const OperationPtr &operation);
    void ended(const Operation &operation);
    // Call this when the host knows more operations to be done: those for which `known` returns
    // true.
    void learned(const std::function<bool(const Operation &)> &known);
    // Stop watching all ranges in an allocation, all that overlap a range, all of an operation, or
    // all ranges.
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
        bool hashed; // false if there is no hash, because a device operation writes there
        uint64_t hash;
    };

    template <class Chosen> void drop(Chosen chosen);
    void hash(Watch &watch);
    // Compares the bytes with the hash. Returns true if they are equal; else reports a race and
    // returns false.
    bool intact(const Watch &watch) const;
    bool being_written(const Range &range) const;

    Report report_;
    std::vector<Watch> watches_;
    std::vector<OperationPtr> writers_; // running operations that write memory
};

} // namespace soft
