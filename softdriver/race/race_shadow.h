#pragma once

#include "memory/allocation.h"
#include "work/operation.h"

#include <map>

namespace soft {

// Whom the host knows to be done: whatever comes later is ordered after it.
struct RaceSettled {
    const RaceClock *known; // null: nothing is
    bool operator()(const Operation &operation) const;
};

enum class RaceUse : uint8_t { Read, Write, Update };

inline const std::vector<Range> &ranges_of(const Operation &operation, RaceUse use) {
    return use == RaceUse::Read    ? operation.reads
           : use == RaceUse::Write ? operation.writes
                                   : operation.updates;
}

// An earlier access that a later one is not ordered after.
struct RaceConflict {
    OperationPtr operation;
    Range range; // all that it accessed there
    RaceUse use;
};

// The accesses to one allocation that later ones can still race with: for each byte the last write
// and the reads since then. It lives as long as the allocation, or an operation that is to be
// checked against it.
class RaceShadow {
  public:
    explicit RaceShadow(const Allocation &allocation);

    const uintptr_t begin;
    const size_t bytes;
    const char *const host; // where its bytes really are
    const MemoryKind kind;
    const uint64_t id;
    bool ignored = false; // its device is lost

    bool holds(const Range &range) const {
        return range.begin >= begin && range.end() <= begin + bytes;
    }
    bool host_visible() const { return kind != MemoryKind::Device && kind != MemoryKind::Async; }

    // Remembers an access. Returns the earlier ones that it races with.
    std::vector<RaceConflict> access(const OperationPtr &operation, const Range &range, RaceUse use,
                                     const RaceSettled &settled);
    // All accesses that are not settled: what a free by the host races with.
    std::vector<RaceConflict> unsettled(const RaceSettled &settled) const;

    // Words that streams wait for and write. They are no data, but they are used.
    void use_word(const OperationPtr &operation, const RaceSettled &settled);
    bool has_word(const Range &range) const;
    // Those who come to see the value of a word are ordered after its writer.
    void release_word(const Range &word, const RaceMark &writer);
    void acquire_word(const Range &word, RaceClock &clock) const;
    // True if something that comes before this place is still to write the word.
    bool will_change(const Range &word, const RaceMark &place) const;

  private:
    struct Segment {
        uintptr_t end;
        OperationPtr writer;
        std::vector<OperationPtr> readers, updaters;
    };
    using Segments = std::map<uintptr_t, Segment>;
    // An access in rows that lie apart.
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
    std::vector<OperationPtr> users_;         // of words, the latest of each stream
    std::map<uintptr_t, RaceClock> released_; // by address of a word
};

using RaceShadowPtr = std::shared_ptr<RaceShadow>;

} // namespace soft
