#include "ptx/warp.h"

#include "ptx/machine.h"
#include "ptx/observer.h"

#include <algorithm>
#include <string>

namespace soft::ptx {

namespace {

// An address that is higher than the address of every step.
const Step *const nowhere = reinterpret_cast<const Step *>(~uintptr_t{0});

// How often a group may jump backwards before another group runs. The lanes of a group may poll for
// a result of another group, so this must be limited.
constexpr unsigned patience = 512;

// Returns whether group `a` runs before group `b`. The order is: lower turn, deeper call, earlier
// step. It lets lanes meet again where their paths join.
bool before(const Group &a, const Group &b) {
    if (a.turn != b.turn)
        return a.turn < b.turn;
    if (a.frame->depth != b.frame->depth)
        return a.frame->depth > b.frame->depth;
    return a.next < b.next;
}

bool can_run(const Group &group) {
    return group.wait == Group::Wait::None || group.wait == Group::Wait::Met;
}

} // namespace

uint64_t Warp::run(uint64_t steps) {
    if (Observer *observer = machine.observer.get())
        return run_steps(steps, [&](const Step &step) { observer->run(*this, step); });
    return run_steps(steps, [&](const Step &step) { step.run(*this, step); });
}

template <class Execute> uint64_t Warp::run_steps(uint64_t steps, Execute execute) {
    uint64_t left = steps;
    yielded_ = false;
    while (left && !yielded_ && select()) {
        for (; left; left--) {
            const Step *step = next;
            if (step >= limit)
                break;
            next = step + 1;
            execute(*step);
        }
        if (mask)
            wait({frame, next, mask, Group::Wait::None, 0, turn_});
        mask = active = 0;
    }
    return steps - left;
}

bool Warp::select() {
    if (waiting_.size() > 1)
        merge();
    resolve_meetings();
    size_t best = waiting_.size();
    for (size_t i = 0; i < waiting_.size(); i++)
        if (can_run(waiting_[i]) &&
            (best == waiting_.size() || before(waiting_[i], waiting_[best])))
            best = i;
    if (best == waiting_.size())
        return false;
    Group chosen = waiting_[best];
    waiting_[best] = waiting_.back();
    waiting_.pop_back();
    run_group(chosen);
    return true;
}

void Warp::run_group(const Group &group) {
    frame = group.frame;
    rows = frame->rows;
    next = group.next;
    mask = active = group.mask;
    met_ = group.wait == Group::Wait::Met;
    turn_ = group.turn;
    behind_ = false;
    limit = nowhere;
    for (const Group &other : waiting_) {
        if (other.frame != frame || other.wait == Group::Wait::Barrier)
            continue;
        if (other.next <= next)
            behind_ = true;
        else
            limit = std::min(limit, other.next);
    }
}

void Warp::wait(const Group &group) {
    for (Group &other : waiting_)
        if (other.frame == group.frame && other.next == group.next && other.wait == group.wait &&
            other.number == group.number && other.turn == group.turn) {
            other.mask |= group.mask;
            return;
        }
    waiting_.push_back(group);
}

// Merges groups that are at the same step. If one of them waited at this step for other lanes, the
// merged group runs the step again.
void Warp::merge() {
    using Wait = Group::Wait;
    auto joinable = [](const Group &group) {
        return group.wait == Wait::None || group.wait == Wait::Lanes;
    };
    for (size_t i = 0; i < waiting_.size(); i++)
        for (size_t j = i + 1; j < waiting_.size();) {
            Group &a = waiting_[i], &b = waiting_[j];
            bool different = a.wait == Wait::Lanes && b.wait == Wait::Lanes && a.number != b.number;
            if (a.frame != b.frame || a.next != b.next || !joinable(a) || !joinable(b) ||
                different) {
                j++;
                continue;
            }
            a.mask |= b.mask;
            a.turn = std::min(a.turn, b.turn);
            if (b.wait == Wait::None)
                a.wait = Wait::None;
            waiting_[j] = waiting_.back();
            waiting_.pop_back();
        }
}

// If groups wait for each other's lanes, and all these lanes have arrived, lets the groups
// continue. The groups may be at different steps.
void Warp::resolve_meetings() {
    for (Group &group : waiting_) {
        if (group.wait != Group::Wait::Lanes)
            continue;
        uint32_t here = 0;
        for (const Group &other : waiting_)
            if (other.wait == Group::Wait::Lanes && other.number == group.number)
                here |= other.mask;
        if (group.number & live & ~here)
            continue;
        for (Group &other : waiting_)
            if (other.wait == Group::Wait::Lanes && other.number == group.number)
                other.wait = Group::Wait::Met;
    }
}

void Warp::release(unsigned barrier) {
    for (Group &group : waiting_)
        if (group.wait == Group::Wait::Barrier && group.number == barrier)
            group.wait = Group::Wait::None;
}

const Step *Warp::waits_at(unsigned barrier) const {
    if (waiting_.size() != 1)
        return nullptr;
    const Group &group = waiting_.front();
    return group.wait == Group::Wait::Barrier && group.number == barrier ? group.next - 1 : nullptr;
}

void Warp::jumped_back() {
    if (waiting_.empty())
        return;
    if (behind_)
        interrupt();
    if (++jumps_back_ > patience) {
        jumps_back_ = 0;
        turn_ = ++turns_;
        interrupt();
    }
}

void Warp::jump(const Step *target) {
    bool back = target < next;
    next = target;
    if (back)
        jumped_back();
}

void Warp::split(const Step *target) {
    uint32_t rest = mask & ~active;
    if (!rest)
        return jump(target);
    if (target >= next) {
        wait({frame, target, active, Group::Wait::None, 0, turn_});
        limit = std::min(limit, target);
        mask = rest;
    } else {
        wait({frame, next, rest, Group::Wait::None, 0, turn_});
        limit = std::min(limit, next);
        mask = active;
        next = target;
        jumped_back();
    }
    active = mask;
}

void Warp::send(const Step *target, uint32_t lanes) {
    wait({frame, target, lanes, Group::Wait::None, 0, turn_});
    mask &= ~lanes;
    interrupt();
}

bool Warp::meet(const Step &step, uint32_t members) {
    if (has_met(members, active)) {
        met_ = false;
        return true;
    }
    wait({frame, &step, active, Group::Wait::Lanes, members, turn_});
    mask &= ~active;
    interrupt();
    return false;
}

uint32_t Warp::first_tile(const uint32_t *members, uint32_t lanes) {
    uint32_t first = members[__builtin_ctz(lanes)], tile = lanes, any = 0;
    for (unsigned lane = 0; lane < warp_size; lane++)
        any |= members[lane] ^ first;
    if (!any)
        return lanes;
    for (uint32_t left = lanes & ~lanes_with(members, first, lanes); left;) {
        uint32_t mask = members[__builtin_ctz(left)], with = lanes_with(members, mask, left);
        left &= ~with;
        if (!(mask & lanes & ~with) && !(first & with))
            tile &= ~with;
    }
    return tile;
}

bool Warp::meet_all_named(const Step &step, const uint32_t *members) {
    // Fast path: all members of all lanes are here.
    uint32_t named = 0, ready = 0;
    if (active == ~uint32_t{0})
        for (unsigned lane = 0; lane < warp_size; lane++)
            named |= members[lane];
    else
        for (uint32_t left = active; left; left &= left - 1)
            named |= members[__builtin_ctz(left)];
    if (has_met(named, active)) {
        met_ = false;
        return true;
    }
    meet_named(step, members, [&] { ready |= active; });
    active = ready;
    return ready;
}

void Warp::wait_barrier(unsigned barrier) {
    wait({frame, next, active, Group::Wait::Barrier, barrier, turn_});
    mask &= ~active;
    interrupt();
}

std::string Warp::what_it_waits_for() const {
    const Group &group = waiting_.front();
    const Code &code = *group.frame->code;
    size_t place = size_t(group.next - code.body.data());
    bool barrier = group.wait == Group::Wait::Barrier;
    place -= barrier; // these lanes are at the step after the barrier
    return machine.where(*this, unsigned(__builtin_ctz(group.mask))) + " at " + code.where(place) +
           " (" + code.written[place] + ")" + (barrier ? "" : " for other lanes of its warp");
}

void Warp::yield() {
    yielded_ = true;
    interrupt();
}

} // namespace soft::ptx
