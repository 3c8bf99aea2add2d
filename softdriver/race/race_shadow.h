#pragma once

#include "memory/allocation.h"
#include "work/operation.h"

#include <map>

namespace soft {

// Returns true for operations that the host knows to be done. These need no checks, because
// everything later is ordered after them.
struct RaceSettled {
    const RaceClock *known; // the host's clock; with null, no operation is settled
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
    Range range; // the whole range of the earlier access
    RaceUse use;
};

// The accesses to one allocation with which later accesses can race: for each byte the last write,
// and the reads and atomic updates since that write. A shadow lives as long as the allocation and
// all operations that must be checked against it.
class RaceShadow {
  public:
    explicit RaceShadow(const Allocation &allocation);

    const uintptr_t begin;
    const size_t bytes;
    const char *const host; // the address at which the driver accesses the bytes
    const MemoryKind kind;
    const uint64_t id;
    bool ignored = false; // true when its device is lost
    bool removed = false; // true when the memory was freed: it may be unmapped at any time

    bool holds(const Range &range) const {
        return range.begin >= begin && range.end() <= begin + bytes;
    }
    bool host_visible() const { return kind != MemoryKind::Device && kind != MemoryKind::Async; }

    // Records an access. Returns the earlier accesses with which it races.
    std::vector<RaceConflict> access(const OperationPtr &operation, const Range &range, RaceUse use,
                                     const RaceSettled &settled);
    // Returns all accesses that are not settled. A free by the host races with them.
    std::vector<RaceConflict> unsettled(const RaceSettled &settled) const;

    // Records an operation that waits for a value in this memory, or writes such a value. It never
    // races with other accesses, but it can race with a free of the memory.
    void use_word(const OperationPtr &operation, const RaceSettled &settled);
    bool has_word(const Range &range) const;
    // Call release_word() when an operation writes a word for which streams may wait.
    // acquire_word() joins the writers of a word, and everything that is ordered before them, into
    // the clock of a wait.
    void release_word(const Range &word, const RaceMark &writer);
    void acquire_word(const Range &word, RaceClock &clock) const;
    // Returns true if the word will still be written by an operation that is ordered before this
    // place.
    bool will_change(const Range &word, const RaceMark &place) const;

  private:
    struct Segment {
        uintptr_t end;
        OperationPtr writer;
        std::vector<OperationPtr> readers, updaters;
    };
    using Segments = std::map<uintptr_t, Segment>;
    // An access to several rows with gaps between them.
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
    // The latest operations that wait for values in this memory or write them.
    std::vector<OperationPtr> users_;
    // For each word, by address: its writers and everything that is ordered before them.
    std::map<uintptr_t, RaceClock> released_;
};

using RaceShadowPtr = std::shared_ptr<RaceShadow>;

} // namespace soft
