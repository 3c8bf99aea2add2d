#pragma once

#include "memory/allocation.h"
#include "work/operation.h"

#include <map>

namespace soft {

// True for operations that the host knows to be done: everything later is ordered after them.
struct RaceSettled {
    const RaceClock *known; // the host's clock; null: nothing is settled
    bool operator()(const Operation &operation) const;
};

enum class RaceUse : uint8_t { Read, Write, Update };

inline const std::vector<Range> &ranges_of(const Operation &operation, RaceUse use) {
    return use == RaceUse::Read    ? operation.reads
           : use == RaceUse::Write ? operation.writes
                                   : operation.updates;
}

// An earlier access that races with a later one.
struct RaceConflict {
    OperationPtr operation;
    Range range; // the whole range of that access
    RaceUse use;
};

// The accesses to one allocation with which later ones can race: for each byte the last write, and
// the reads and atomic updates since then. It lives as long as the allocation and all operations
// that must be checked against it.
class RaceShadow {
  public:
    explicit RaceShadow(const Allocation &allocation);

    const uintptr_t begin;
    const size_t bytes;
    const char *const host; // where the driver accesses its bytes
    const MemoryKind kind;
    const uint64_t id;
    bool ignored = false; // true after its device is lost

    bool holds(const Range &range) const {
        return range.begin >= begin && range.end() <= begin + bytes;
    }
    bool host_visible() const { return kind != MemoryKind::Device && kind != MemoryKind::Async; }

    // Records an access. Returns the earlier accesses with which it races.
    std::vector<RaceConflict> access(const OperationPtr &operation, const Range &range, RaceUse use,
                                     const RaceSettled &settled);
    // All accesses that are not settled: a free by the host races with them.
    std::vector<RaceConflict> unsettled(const RaceSettled &settled) const;

    // Records the use of words with which streams synchronize. They never race as data, but freeing
    // them can.
    void use_word(const OperationPtr &operation, const RaceSettled &settled);
    bool has_word(const Range &range) const;
    // A wait that sees the value of a word (acquire) is ordered after its writer (release).
    void release_word(const Range &word, const RaceMark &writer);
    void acquire_word(const Range &word, RaceClock &clock) const;
    // True if an operation ordered before this place will still write the word.
    bool will_change(const Range &word, const RaceMark &place) const;

  private:
    struct Segment {
        uintptr_t end;
        OperationPtr writer;
        std::vector<OperationPtr> readers, updaters;
    };
    using Segments = std::map<uintptr_t, Segment>;
    // An access to rows with gaps.
    struct Stripe {
        Range range;
        OperationPtr operation;
        RaceUse use;
    };
    struct Access {
        const OperationPtr &operation;
        const Range &range;
        RaceUse use;
        const RaceSettled &settled;
        std::vector<RaceConflict> conflicts;
    };

    void compare(Access &access, const OperationPtr &earlier, const Range &where, RaceUse use);
    void compare_segment(Access &access, uintptr_t start, Segment &segment);
    void compare_stripes(Access &access);
    void remember_segments(Access &access);
    void split(uintptr_t at);
    template <class Visit> void each_writer(const Range &word, Visit visit) const;
    void sweep(const RaceSettled &settled);

    Segments segments_;
    size_t sweep_at_ = 64;
    std::vector<Stripe> stripes_;
    std::vector<OperationPtr> users_; // latest users of words
    // By the word's address: what its writers are ordered after.
    std::map<uintptr_t, RaceClock> released_;
};

using RaceShadowPtr = std::shared_ptr<RaceShadow>;

} // namespace soft
