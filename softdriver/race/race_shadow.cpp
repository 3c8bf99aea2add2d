#include "race/race_shadow.h"

#include "race/race_order.h"

#include <algorithm>

namespace soft {
namespace {

constexpr size_t max_stripes = 1024; // if there are more stripes, the oldest is dropped

template <class Where> void add_conflict(std::vector<RaceConflict> &found, const Where &conflict) {
    for (const RaceConflict &known : found)
        if (known.operation == conflict.operation)
            return;
    found.push_back(conflict);
}

// Returns true if accesses of these two kinds to the same byte race unless they are ordered.
bool conflict(RaceUse one, RaceUse other) { return one != other || one == RaceUse::Write; }

// Returns the range of the operation that overlaps `where`.
Range range_of(const Operation &operation, const Range &where, RaceUse use) {
    for (const Range &range : ranges_of(operation, use))
        if (range.overlaps(where))
            return range;
    return where;
}

// Adds an operation, and removes the operations that are ordered before it: a later access that
// races with one of them also races with the added operation.
void add_latest(std::vector<OperationPtr> &operations, const OperationPtr &added,
                const RaceSettled &settled) {
    auto old = [&](const OperationPtr &earlier) {
        return settled(*earlier) || added->mark.after(earlier->mark);
    };
    operations.erase(std::remove_if(operations.begin(), operations.end(), old), operations.end());
    operations.push_back(added);
}

} // namespace

bool RaceSettled::operator()(const Operation &operation) const {
    return known && known->at(operation.mark.track->slot) >= operation.mark.tick;
}

RaceShadow::RaceShadow(const Allocation &allocation)
    : begin(allocation.begin), bytes(allocation.bytes), host(allocation.host),
      kind(allocation.kind), id(allocation.id), of_others(allocation.of_others) {}

void RaceShadow::compare(Access &access, const OperationPtr &earlier, const Range &where,
                         RaceUse use) {
    if (earlier == access.operation || access.settled(*earlier) ||
        access.operation->mark.after(earlier->mark))
        return;
    add_conflict(access.conflicts, RaceConflict{earlier, range_of(*earlier, where, use), use});
}

void RaceShadow::compare_segment(Access &access, uintptr_t start, Segment &segment) {
    Range where{start, segment.end - start};
    if (segment.writer)
        compare(access, segment.writer, where, RaceUse::Write);
    if (access.use != RaceUse::Read)
        for (const OperationPtr &reader : segment.readers)
            compare(access, reader, where, RaceUse::Read);
    if (access.use != RaceUse::Update)
        for (const OperationPtr &updater : segment.updaters)
            compare(access, updater, where, RaceUse::Update);
}

void RaceShadow::compare_stripes(Access &access) {
    for (size_t i = stripes_.size(); i-- > 0;) {
        Stripe &stripe = stripes_[i];
        bool superseded = access.use == RaceUse::Write || access.use == stripe.use;
        if (conflict(access.use, stripe.use) && stripe.range.overlaps(access.range))
            compare(access, stripe.operation, stripe.range, stripe.use);
        bool over = superseded && access.range.covers(stripe.range) &&
                    access.operation->mark.after(stripe.operation->mark);
        if (over || access.settled(*stripe.operation))
            stripes_.erase(stripes_.begin() + i);
    }
}

// If the address lies inside a segment, splits the segment there.
void RaceShadow::split(uintptr_t at) {
    auto next = segments_.lower_bound(at);
    if (next == segments_.begin())
        return;
    auto before = std::prev(next);
    if (before->second.end <= at)
        return;
    segments_.emplace_hint(next, at, before->second);
    before->second.end = at;
}

void RaceShadow::remember_segments(Access &access) {
    uintptr_t start = access.range.begin, end = access.range.end();
    auto segment = segments_.lower_bound(start);
    if (access.use == RaceUse::Write) {
        while (segment != segments_.end() && segment->first < end)
            segment = segments_.erase(segment);
        segments_.emplace_hint(segment, start, Segment{end, access.operation, {}, {}});
        return;
    }
    for (; start < end; segment++) {
        if (segment == segments_.end() || segment->first > start) {
            uintptr_t gap = segment == segments_.end() ? end : std::min(end, segment->first);
            segment = segments_.emplace_hint(segment, start, Segment{gap, nullptr, {}, {}});
        }
        Segment &found = segment->second;
        add_latest(access.use == RaceUse::Read ? found.readers : found.updaters, access.operation,
                   access.settled);
        start = segment->second.end;
    }
}

std::vector<RaceConflict> RaceShadow::access(const OperationPtr &operation, const Range &range,
                                             RaceUse use, const RaceSettled &settled) {
    Access access{operation, range, use, settled, {}};
    if (range.contiguous()) {
        split(range.begin);
        split(range.end());
    }
    auto segment = segments_.upper_bound(range.begin);
    if (segment != segments_.begin())
        segment--;
    for (; segment != segments_.end() && segment->first < range.end(); segment++)
        if (Range{segment->first, segment->second.end - segment->first}.overlaps(range))
            compare_segment(access, segment->first, segment->second);
    compare_stripes(access);
    if (range.contiguous())
        remember_segments(access);
    else
        stripes_.push_back({range, operation, use});
    if (stripes_.size() > max_stripes)
        stripes_.erase(stripes_.begin());
    if (segments_.size() > sweep_at_)
        sweep(settled);
    return std::move(access.conflicts);
}

void RaceShadow::sweep(const RaceSettled &settled) {
    for (auto next = segments_.begin(); next != segments_.end();) {
        Segment &segment = next->second;
        if (segment.writer && settled(*segment.writer))
            segment.writer = nullptr;
        for (auto *users : {&segment.readers, &segment.updaters})
            users->erase(std::remove_if(users->begin(), users->end(),
                                        [&](auto &user) { return settled(*user); }),
                         users->end());
        bool empty = !segment.writer && segment.readers.empty() && segment.updaters.empty();
        next = empty ? segments_.erase(next) : std::next(next);
    }
    sweep_at_ = std::max<size_t>(64, 2 * segments_.size());
}

std::vector<RaceConflict> RaceShadow::unsettled(const RaceSettled &settled) const {
    std::vector<RaceConflict> found;
    auto consider = [&](const OperationPtr &operation, const Range &where, RaceUse use) {
        if (!settled(*operation))
            add_conflict(found, RaceConflict{operation, range_of(*operation, where, use), use});
    };
    for (const auto &entry : segments_) {
        Range where{entry.first, entry.second.end - entry.first};
        if (entry.second.writer)
            consider(entry.second.writer, where, RaceUse::Write);
        for (const OperationPtr &reader : entry.second.readers)
            consider(reader, where, RaceUse::Read);
        for (const OperationPtr &updater : entry.second.updaters)
            consider(updater, where, RaceUse::Update);
    }
    for (const Stripe &stripe : stripes_)
        consider(stripe.operation, stripe.range, stripe.use);
    for (const OperationPtr &user : users_)
        consider(user, Range{begin, bytes}, user->writes.empty() ? RaceUse::Read : RaceUse::Write);
    return found;
}

void RaceShadow::use_word(const OperationPtr &operation, const RaceSettled &settled) {
    for (const auto *ranges : {&operation->reads, &operation->writes})
        for (const Range &word : *ranges)
            released_.try_emplace(word.begin);
    add_latest(users_, operation, settled);
}

bool RaceShadow::has_word(const Range &range) const {
    auto word = released_.lower_bound(range.begin);
    return word != released_.end() && word->first < range.end();
}

void RaceShadow::release_word(const Range &word, const RaceMark &writer) {
    RaceClock &clock = released_[word.begin];
    clock.join(*writer.before);
    clock.raise(writer.track->slot, writer.tick);
}

// Visits the operations that have last written the word's bytes as data, or that will do so.
template <class Visit> void RaceShadow::each_writer(const Range &word, Visit visit) const {
    for (auto next = segments_.begin(); next != segments_.end() && next->first < word.end(); next++)
        if (next->second.end > word.begin && next->second.writer)
            visit(*next->second.writer);
}

void RaceShadow::acquire_word(const Range &word, RaceClock &clock) const {
    auto released = released_.find(word.begin);
    if (released != released_.end())
        clock.join(released->second);
    // The word may have been written as data, for example by a copy.
    each_writer(word, [&](const Operation &writer) {
        if (writer.progress == Progress::Queued)
            return;
        clock.join(*writer.mark.before);
        clock.raise(writer.mark.track->slot, writer.mark.tick);
    });
}

bool RaceShadow::will_change(const Range &word, const RaceMark &place) const {
    bool found = false;
    auto consider = [&](const Operation &writer) {
        found |= !writer.done() && place.after(writer.mark);
    };
    each_writer(word, consider);
    for (const OperationPtr &user : users_)
        if (user->writes_to(word))
            consider(*user);
    return found;
}

} // namespace soft
