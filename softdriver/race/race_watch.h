#pragma once

#include "race/race_shadow.h"

#include <functional>

namespace soft {

// Finds writes of the host to memory that a device operation uses. The bytes are hashed when the
// operation is submitted, and compared when it starts and when the host knows that it is done.
// Writes of device operations in between are excluded.
class RaceWatches {
  public:
    // Called with the operation, the range, and how the operation uses it.
    using Report =
        std::function<void(const Operation &, const RaceShadow &, const Range &, RaceUse)>;
    explicit RaceWatches(Report report) : report_(std::move(report)) {}

    void add(const OperationPtr &operation, const RaceShadowPtr &shadow, const Range &range,
             RaceUse use);
    // Called when an operation starts and ends.
    void started(const OperationPtr &operation);
    void ended(const Operation &operation);
    // The host now knows that the chosen operations are done.
    void learned(const std::function<bool(const Operation &)> &known);
    // Stop watching: an allocation, whatever shares bytes with a range, an operation, everything.
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
        bool hashed; // false: no hash, as a device operation writes there
        uint64_t hash;
    };

    template <class Chosen> void drop(Chosen chosen);
    void hash(Watch &watch);
    // Compares the bytes with the hash. Reports a change and returns false.
    bool intact(const Watch &watch) const;
    bool being_written(const Range &range) const;

    Report report_;
    std::vector<Watch> watches_;
    std::vector<OperationPtr> writers_; // running operations that write
};

} // namespace soft
