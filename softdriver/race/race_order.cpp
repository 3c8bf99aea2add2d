#include "race/race_order.h"

#include "api/state.h"

namespace soft {
namespace {

// A clock that is shared with its former owners until something new is joined into it. Then the
// clock is copied.
class Joining {
  public:
    explicit Joining(RaceClockPtr start) : clock_(std::move(start)) {}

    void join(const RaceClockPtr &other) {
        if (other != clock_ && !clock_->covers(*other))
            own().join(*other);
    }
    // Joins an operation, and everything that is ordered before it, into the clock.
    void join(const RaceMark &mark) {
        if (clock_->at(mark.track->slot) >= mark.tick)
            return;
        join(mark.before);
        own().raise(mark.track->slot, mark.tick);
    }
    RaceClock &own() {
        if (!owned_) {
            owned_ = std::make_shared<RaceClock>(*clock_);
            clock_ = owned_;
        }
        return *owned_;
    }
    RaceClockPtr result() { return std::move(clock_); }
    bool changed() const { return owned_ != nullptr; }

  private:
    RaceClockPtr clock_;
    std::shared_ptr<RaceClock> owned_;
};

bool all_certain(const std::vector<OperationPtr> &operations) {
    return std::all_of(operations.begin(), operations.end(),
                       [](auto &operation) { return operation->mark.certain(); });
}

} // namespace

bool RaceMark::after(const RaceMark &other) const {
    if (other.track->slot == track->slot)
        return other.tick <= tick;
    return before->at(other.track->slot) >= other.tick;
}

// Returns a new track. It takes over the slot of a track whose stream is gone and whose operations
// the host knows to be done: all later work is ordered after these anyway.
RaceTrackPtr RaceOrder::new_track() {
    auto track = std::make_shared<RaceTrack>();
    for (auto &old : tracks_)
        if (old->stream.expired() && host_->at(old->slot) >= old->tick) {
            track->slot = old->slot;
            track->tick = old->tick;
            old->tail = nullptr;
            old = track;
            return track;
        }
    track->slot = tracks_.size();
    tracks_.push_back(track);
    return track;
}

RaceTrackPtr RaceOrder::track_of(Stream &stream) {
    if (stream.track)
        return stream.track;
    RaceTrackPtr track = new_track();
    track->stream = stream.weak_from_this();
    track->context = stream.owner;
    track->handle = stream.handle;
    track->id = stream.id;
    track->legacy = stream.kind == StreamKind::Legacy;
    track->per_thread = stream.kind == StreamKind::PerThread;
    track->blocking = stream.blocking();
    stream.track = track;
    return track;
}

std::vector<OperationPtr> RaceOrder::tails(const Stream &stream) const {
    std::vector<OperationPtr> found;
    if (stream.track && stream.track->tail)
        found.push_back(stream.track->tail);
    if (stream.kind == StreamKind::Legacy)
        for (const RaceTrackPtr &track : tracks_)
            if (track->blocking && track->context == stream.owner && track->tail &&
                track != stream.track)
                found.push_back(track->tail);
    return found;
}

std::vector<OperationPtr> RaceOrder::tails(const Context &context) const {
    std::vector<OperationPtr> found;
    for (const RaceTrackPtr &track : tracks_)
        if (track->context == &context && track->tail)
            found.push_back(track->tail);
    return found;
}

void RaceOrder::add_gate(const Context &context, const OperationPtr &gate) {
    if (gate->mark.track)
        gates_[&context].push_back(gate);
}

// Returns the gates of a context, which are operations after which all later work of the context is
// ordered. Removes gates that the host knows to be done, because later work is ordered after the
// host.
const std::vector<OperationPtr> &RaceOrder::gates_of(const Context *context) {
    static const std::vector<OperationPtr> none;
    auto found = gates_.find(context);
    if (found == gates_.end())
        return none;
    auto &gates = found->second;
    gates.erase(std::remove_if(gates.begin(), gates.end(),
                               [&](auto &gate) { return gate->mark.certain() && known(*gate); }),
                gates.end());
    if (!gates.empty())
        return gates;
    gates_.erase(found);
    return none;
}

void RaceOrder::place(Stream &stream, const OperationPtr &operation) {
    RaceTrackPtr track = track_of(stream);
    std::vector<OperationPtr> uncertain;
    OperationPtr tail = track->tail;
    Joining clock(tail && tail->mark.certain() ? tail->mark.before : host_);
    auto join = [&](const OperationPtr &earlier) {
        if (!earlier->mark.track)
            return;
        if (earlier->mark.certain())
            clock.join(earlier->mark);
        else
            uncertain.push_back(earlier);
    };
    if (tail && !tail->mark.certain())
        uncertain.push_back(tail);
    clock.join(host_);
    for (const OperationPtr &wait : operation->waits)
        join(wait);
    if (operation->legacy_rules && track->legacy) {
        for (const OperationPtr &other : tails(stream))
            if (other != tail)
                join(other);
    } else if (operation->legacy_rules && track->blocking) {
        const RaceTrackPtr &legacy = stream.owner->legacy->track;
        if (legacy && legacy->tail)
            join(legacy->tail);
    }
    if (!gates_.empty())
        for (const OperationPtr &gate : gates_of(stream.owner))
            join(gate);
    operation->mark.track = track;
    operation->mark.tick = ++track->tick;
    track->tail = operation;
    bool is_wait = operation->synchronizes && operation->condition;
    if (uncertain.empty() && !is_wait) {
        operation->mark.before = clock.result();
        certain_(operation);
        return;
    }
    pending_.push_back({operation, std::move(uncertain), clock.result(), is_wait});
    if (is_wait)
        waits_.push_back(&pending_.back());
    if (pending_.back().after.empty())
        look();
}

bool RaceOrder::place_early(Stream &stream, const OperationPtr &operation) {
    RaceTrackPtr track = track_of(stream);
    auto certain = [](const OperationPtr &wait) {
        return !wait->mark.track || wait->mark.certain();
    };
    const OperationPtr &predecessor = operation->predecessor;
    if (!predecessor->mark.track || !predecessor->mark.certain() ||
        !std::all_of(operation->waits.begin(), operation->waits.end(), certain))
        return false;
    if (!track->early) {
        track->early = new_track();
        RaceTrack of_early = *track;
        of_early.slot = track->early->slot;
        of_early.tick = track->early->tick;
        of_early.tail = nullptr;
        *track->early = of_early;
    }
    const OperationPtr &early = operation->early;
    early->function = operation->function;
    early->number = operation->number;
    early->label = operation->label;
    auto behind = [&](const RaceClockPtr &start) {
        Joining clock(start);
        clock.join(host_);
        for (const OperationPtr &wait : operation->waits)
            if (wait->mark.track && wait != predecessor)
                clock.join(wait->mark);
        return clock.result();
    };
    early->mark.track = track->early;
    early->mark.tick = ++track->early->tick;
    early->mark.before = behind(predecessor->mark.before);
    if (predecessor->early)
        early->before_ahead = behind(predecessor->early->mark.before);
    track->early->tail = early;
    operation->waits.push_back(early);
    certain_(early);
    return true;
}

OperationPtr RaceOrder::last(const Stream &stream) const {
    return stream.track ? stream.track->tail : nullptr;
}

// Returns true if work that is ordered before a wait will still write the awaited word. The present
// value of the word then does not end the wait, because the work overwrites it first.
bool RaceOrder::will_change(const Pending &pending, const RaceShadow &memory) const {
    Joining clock(pending.before);
    for (const OperationPtr &earlier : pending.after)
        clock.join(earlier->mark);
    RaceMark place = pending.operation->mark;
    place.before = clock.result();
    const Range &word = pending.operation->reads.front();
    bool found = memory.will_change(word, place);
    unrecorded_([&](const Operation &writer) {
        found |= !writer.done() && writer.writes_to(word) && place.after(writer.mark);
    });
    return found;
}

// Returns whether the awaited value has come. If so, orders the wait after the operations that
// wrote the value. The places of all predecessors of the wait must be certain.
bool RaceOrder::has_come(Pending &pending) {
    const OperationPtr &wait = pending.operation;
    const Range &word = wait->reads.front();
    const Allocation *allocation = find_range(word.begin, word.bytes);
    const RaceShadow *memory = allocation ? allocation->shadow.get() : nullptr;
    if (!pending.arrived) {
        if (wait->condition && !wait->condition())
            return false;
        if (memory && will_change(pending, *memory))
            return false;
        pending.arrived = true;
    }
    Joining clock(pending.before);
    if (!pending.by_device)
        clock.join(host_);
    if (memory)
        memory->acquire_word(word, clock.own());
    unrecorded_([&](const Operation &writer) {
        if (writer.progress != Progress::Queued && writer.writes_to(word))
            clock.join(writer.mark);
    });
    pending.before = clock.result();
    return true;
}

void RaceOrder::look() {
    for (Pending *wait : waits_)
        if (all_certain(wait->after) && has_come(*wait)) {
            sweep();
            return;
        }
}

// Determines the places of all pending operations for which this is possible now. One pass is
// enough: the list is in order of submission, so an operation comes after all its predecessors.
void RaceOrder::sweep() {
    for (auto next = pending_.begin(); next != pending_.end();) {
        Pending &pending = *next;
        if (!all_certain(pending.after) || (pending.is_wait && !has_come(pending))) {
            next++;
            continue;
        }
        Joining clock(pending.before);
        for (const OperationPtr &earlier : pending.after)
            clock.join(earlier->mark);
        pending.operation->mark.before = clock.result();
        certain_(pending.operation);
        waits_.erase(std::remove(waits_.begin(), waits_.end(), &pending), waits_.end());
        next = pending_.erase(next);
    }
}

void RaceOrder::arrived(const Operation &wait) {
    for (Pending *pending : waits_)
        if (pending->operation.get() == &wait) {
            pending->arrived = true;
            sweep();
            return;
        }
}

void RaceOrder::abandon(const Operation &operation) {
    for (auto next = pending_.begin(); next != pending_.end(); next++)
        if (next->operation.get() == &operation) {
            next->operation->mark.before = next->before;
            waits_.erase(std::remove(waits_.begin(), waits_.end(), &*next), waits_.end());
            pending_.erase(next);
            sweep();
            return;
        }
}

void RaceOrder::before_write(const Operation &writer) {
    for (Pending *pending : waits_)
        if (!pending->arrived && writer.writes_to(pending->operation->reads.front()))
            pending->by_device |= !pending->operation->condition();
}

void RaceOrder::after_write(const Operation &writer) {
    for (Pending *pending : waits_)
        if (!pending->arrived && writer.writes_to(pending->operation->reads.front()))
            pending->by_device &= pending->operation->condition();
    look();
}

bool RaceOrder::known(const Operation &operation) const {
    return host_->at(operation.mark.track->slot) >= operation.mark.tick;
}

bool RaceOrder::learn(const std::vector<OperationPtr> &operations) {
    Joining clock(host_);
    for (const OperationPtr &operation : operations)
        if (operation->mark.certain())
            clock.join(operation->mark);
    if (!clock.changed())
        return false;
    host_ = clock.result();
    return true;
}

bool RaceOrder::over(const Context &context) {
    Joining clock(host_);
    for (const RaceTrackPtr &track : tracks_)
        if (track->context == &context && host_->at(track->slot) < track->tick)
            clock.own().raise(track->slot, track->tick);
    if (!clock.changed())
        return false;
    host_ = clock.result();
    return true;
}

bool RaceOrder::learn_before(const Operation &operation) {
    if (!operation.mark.certain())
        return false;
    Joining clock(host_);
    clock.join(operation.mark.before);
    if (operation.mark.tick > 1)
        clock.own().raise(operation.mark.track->slot, operation.mark.tick - 1);
    if (!clock.changed())
        return false;
    host_ = clock.result();
    return true;
}

void RaceOrder::start_over() {
    waits_.clear();
    for (Pending &pending : pending_)
        pending.operation->mark.before = pending.before;
    pending_.clear();
    Joining clock(host_);
    for (const RaceTrackPtr &track : tracks_)
        if (track->tail)
            clock.join(track->tail->mark);
    host_ = clock.result();
}

} // namespace soft
