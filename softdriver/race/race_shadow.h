#pragma once

#include "memory/allocation.h"
#include "work/operation.h"

#include <map>

namespace soft {

// Returns true for operations that the host knows to be done. Later accesses are ordered after them
// and need no checks against them.
struct RaceSettled {
    const RaceClock *known; // the host's clock; if null, no operation is settled
    bool operator()(const Operation &operation) const;
};

enum class RaceUse : uint8_t { Read, Write, Update };

inline const std::vector<Range> &ranges_of(const Operation &operation, RaceUse use) {
    return use == RaceUse::Read    ? operation.reads
           : use == RaceUse::Write ? operation.writes
                                   : operation.updates;
}

// An earlier access that races with the access that is being checked.
struct RaceConflict {
    OperationPtr operation;
    Range range; // range of the earlier access, even if only a part of it races
    RaceUse use;
};

// The accesses to one allocation with which later accesses can race. For each byte these are the
// last write, and the reads and atomic updates since that write. A shadow lives as long as the
// allocation and all operations that must be checked against it.
class RaceShadow {
  public:
    explicit RaceShadow(const Allocation &allocation);

    const uintptr_t begin;
    const size_t bytes;
    const char *const host; // where the driver itself accesses the bytes
    const MemoryKind kind;
    const uint64_t id;
    const bool of_others; // other processes may write the memory
    bool ignored = false; // true when the device is lost
    bool removed = false; // true when the memory was freed: it may be unmapped at any time

    bool holds(const Range &range) const {
        return range.begin >= begin && range.end() <= begin + bytes;
    }
    bool host_visible() const {
        return kind != MemoryKind::Device && kind != MemoryKind::Async && kind != MemoryKind::Array;
    }

    // Records an access. Returns the earlier accesses with which it races.
    std::vector<RaceConflict> access(const OperationPtr &operation, const Range &range, RaceUse use,
                                     const RaceSettled &settled);
    // Returns all recorded accesses to `freed` that are not settled. A free by the host races with
    // them.
    std::vector<RaceConflict> unsettled(const RaceSettled &settled, const Range &freed) const;

    // Records an operation that waits for a value in this memory, or writes such a value. It can
    // race only with a free of the memory.
    void use_word(const OperationPtr &operation, const RaceSettled &settled);
    bool has_word(const Range &range) const;
    // Call release_word() when an operation writes a word that streams may wait for. acquire_word()
    // joins the writers of a word, and everything that is ordered before them, into the clock of a
    // wait.
    void release_word(const Range &word, const RaceMark &writer);
    void acquire_word(const Range &word, RaceClock &clock) const;
    // Returns true if an operation that is ordered before `place` will still write the word.
    bool will_change(const Range &word, const RaceMark &place) const;

  private:
    struct Segment {
        uintptr_t end;
        OperationPtr writer;
        std::vector<OperationPtr> readers, updaters;
    };
    using Segments = std::map<uintptr_t, Segment>;
    // An access to several rows that have gaps between them.
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
    // The latest operations that wait for values in this memory, or that write such values.
    std::vector<OperationPtr> users_;
    // For each word, by address: the operations that wrote it, and everything that is ordered
    // before these operations.
    std::map<uintptr_t, RaceClock> released_;
};

using RaceShadowPtr = std::shared_ptr<RaceShadow>;

} // namespace soft
