#include "check/clocks.h"

#include <algorithm>

namespace soft::check {

uint32_t Epochs::of(unsigned thread) const {
    auto found = std::lower_bound(later.begin(), later.end(), std::make_pair(thread, uint32_t{0}));
    return found != later.end() && found->first == thread ? found->second : all;
}

bool Epochs::covers(const Epochs &other) const {
    return all >= other.all &&
           std::all_of(other.later.begin(), other.later.end(),
                       [this](const auto &each) { return of(each.first) >= each.second; });
}

EpochsPtr joined(const EpochsPtr &a, const EpochsPtr &b) {
    if (!b || a == b || (a && a->covers(*b)))
        return a;
    if (!a || b->covers(*a))
        return b;
    auto *both = new Epochs;
    both->all = std::max(a->all, b->all);
    auto from_a = a->later.begin(), from_b = b->later.begin();
    while (from_a != a->later.end() || from_b != b->later.end()) {
        bool only_a =
            from_b == b->later.end() || (from_a != a->later.end() && from_a->first < from_b->first);
        bool only_b =
            from_a == a->later.end() || (from_b != b->later.end() && from_b->first < from_a->first);
        auto next = only_b ? *from_b : *from_a;
        if (!only_a && !only_b)
            next.second = std::max(next.second, from_b->second);
        if (next.second > both->all)
            both->later.push_back(next);
        from_a += !only_b;
        from_b += !only_a;
    }
    return both;
}

const Epochs *Known::find(uint32_t block) const {
    if (uint64_t{block} >> levels_ * bits)
        return nullptr;
    const Ptr *at = &root_;
    for (unsigned level = levels_; *at && level--;)
        at = &node(*at).next[block >> level * bits & ((1u << bits) - 1)];
    return static_cast<const Epochs *>(at->get());
}

// Makes the tree higher, so that it has room for more blocks.
void Known::grow(unsigned levels) {
    for (; levels_ < levels; levels_++) {
        if (!root_)
            continue;
        auto *above = new Node;
        above->next[0] = root_;
        root_ = above;
    }
}

// Makes a node that nobody else has.
Known::Node &Known::own_node(Ptr &ptr) {
    if (!ptr)
        ptr = new Node;
    else if (!ptr.is_only_owner())
        ptr = new Node(node(ptr));
    return const_cast<Node &>(node(ptr)); // all nodes are made here or in grow()
}

// Returns what either tree has. If one of the trees already has everything, returns that tree
// itself, so that it stays shared.
Known::Ptr Known::merged(const Ptr &a, const Ptr &b, unsigned level) {
    if (a == b || !b)
        return a;
    if (!a)
        return b;
    if (!level)
        return joined(static_cast<const Epochs *>(a.get()), static_cast<const Epochs *>(b.get()))
            .get();
    const auto &of_a = node(a).next, &of_b = node(b).next;
    std::array<Ptr, size_t{1} << bits> both; // the merged children; few children need to be merged
    bool is_a = true, is_b = true;
    for (size_t i = 0; i < both.size(); i++) {
        if (of_a[i] && of_b[i] && of_a[i] != of_b[i])
            both[i] = merged(of_a[i], of_b[i], level - 1);
        const Ptr &next = both[i] ? both[i] : of_a[i] ? of_a[i] : of_b[i];
        is_a = is_a && next == of_a[i];
        is_b = is_b && next == of_b[i];
    }
    if (is_a || is_b)
        return is_a ? a : b;
    auto *made = new Node;
    for (size_t i = 0; i < both.size(); i++)
        made->next[i] = both[i] ? std::move(both[i]) : of_a[i] ? of_a[i] : of_b[i];
    return made;
}

void Known::learn(uint32_t block, const EpochsPtr &epochs) {
    unsigned levels = 1;
    while (uint64_t{block} >> levels * bits)
        levels++;
    grow(levels);
    const Epochs *known = find(block);
    if (known && known->covers(*epochs))
        return;
    Ptr *at = &root_;
    for (unsigned level = levels_; level--;)
        at = &own_node(*at).next[block >> level * bits & ((1u << bits) - 1)];
    *at = joined(static_cast<const Epochs *>(at->get()), epochs).get();
}

void Known::learn(const Known &other) {
    if (!other.root_ || root_ == other.root_)
        return;
    if (levels_ >= other.levels_) {
        Known higher = other;
        higher.grow(levels_);
        root_ = merged(root_, higher.root_, levels_);
        return;
    }
    grow(other.levels_);
    root_ = merged(root_, other.root_, levels_);
}

void Told::add(const Told &other) {
    everyone.learn(other.everyone);
    if (other.block && of != other.of)
        block = {};
    if (other.block)
        of = other.of;
    block.learn(other.block);
}

Clocks::Clocks(const Actors &actors)
    : actors_(actors), warps_(actors.stride / warp_lanes), epochs_(actors.stride),
      threads_(actors.stride), finished_(actors.count() - actors.stride) {}

void Clocks::begin(uint32_t block) {
    block_ = block;
    base_ = 0;
    latest_ = 1;
    others_ = {};
    std::fill(warps_.begin(), warps_.end(), Warp());
    for (unsigned thread : touched_)
        threads_[thread] = {};
    touched_.clear();
    std::fill(finished_.begin(), finished_.end(), Finished());
    any_finished_ = false;
}

Clocks::Thread &Clocks::touch(unsigned thread) {
    if (!threads_[thread].touched)
        touched_.push_back(thread);
    threads_[thread].touched = true;
    return threads_[thread];
}

int Clocks::unknown(unsigned thread, uint32_t block, unsigned warp, uint32_t lanes,
                    uint32_t epoch) const {
    const Thread &own = threads_[thread];
    bool here = block == block_;
    if (here && (epoch <= base_ || (thread / warp_lanes == warp && epoch <= warps_[warp].base)))
        return -1;
    const Epochs *known = here ? own.more.get() : own.others.find(block);
    const Epochs *of_all = here ? nullptr : others_.find(block);
    for (; lanes; lanes &= lanes - 1) {
        unsigned lane = unsigned(__builtin_ctz(lanes)), other = warp * warp_lanes + lane;
        bool knows = (here && other == thread) || (known && known->of(other) >= epoch) ||
                     (of_all && of_all->of(other) >= epoch) ||
                     (here && other >= actors_.stride && knows_actor(thread, other, epoch));
        if (!knows)
            return int(lane);
    }
    return -1;
}

// Calls `act` with each actor in the planes that belongs to one of these lanes, in order.
template <class Act> void Clocks::for_each_plane(unsigned warp, uint32_t lanes, Act act) const {
    for (unsigned first = actors_.stride + warp * warp_lanes; first < actors_.first_of_warps();
         first += actors_.stride)
        for (uint32_t left = lanes; left; left &= left - 1)
            act(first + unsigned(__builtin_ctz(left)));
}

// Returns the time up to which these lanes of a warp know the operations of an actor. They know
// them if the actor belongs to one of the lanes or to a lane of the warp, or if all threads of the
// block know them.
uint32_t Clocks::known_of_actor(unsigned warp, uint32_t lanes, unsigned actor) const {
    const Finished &finished = finished_[actor - actors_.stride];
    uint32_t time = finished.block;
    if (actor >= actors_.first_other())
        return time;
    if (actor >= actors_.first_of_warps()) { // what the warp has waited for is complete in all four
        unsigned of = actor - actors_.first_of_warps();
        return of / product_warps == warp / product_warps
                   ? std::max(time, finished_[actor - of + warp - actors_.stride].own)
                   : time;
    }
    unsigned owner = actor % actors_.stride;
    if (owner / warp_lanes == warp)
        time = std::max(time, finished.warp);
    return owner / warp_lanes == warp && lanes >> owner % warp_lanes & 1
               ? std::max(time, finished.own)
               : time;
}

bool Clocks::knows_actor(unsigned thread, unsigned actor, uint32_t time) const {
    return known_of_actor(thread / warp_lanes, 1u << thread % warp_lanes, actor) >= time;
}

void Clocks::finish(unsigned actor, uint32_t time) {
    uint32_t &own = finished_[actor - actors_.stride].own;
    own = std::max(own, time);
    any_finished_ = true;
}

uint32_t Clocks::finished(unsigned actor) const {
    const Finished *of_actor = &finished_[actor - actors_.stride];
    if (actor < actors_.first_of_warps() || actor >= actors_.first_other())
        return of_actor->own;
    const Finished *first = of_actor - (actor - actors_.first_of_warps()) % product_warps;
    return std::max_element(first, first + product_warps,
                            [](const auto &a, const auto &b) { return a.own < b.own; })
        ->own;
}

Known Clocks::only(unsigned actor, uint32_t time) const {
    auto *epochs = new Epochs;
    epochs->later.emplace_back(actor, time);
    Known known;
    known.learn(block_, epochs);
    return known;
}

// Returns the times that all lanes of a warp know because all threads know them, or because the
// lanes have met.
Clocks::Times Clocks::base_times(unsigned warp) const {
    Times times(actors_.count());
    std::fill_n(times.begin(), actors_.stride, base_);
    std::fill_n(times.begin() + warp * warp_lanes, warp_lanes, std::max(base_, warps_[warp].base));
    for (unsigned actor = actors_.stride; any_finished_ && actor < times.size(); actor++)
        times[actor] = known_of_actor(warp, 0, actor);
    return times;
}

Clocks::Times Clocks::known_to_all(unsigned warp, uint32_t lanes) const {
    Times base = base_times(warp), all = base;
    const Epochs *last = nullptr;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const Epochs *more = threads_[warp * warp_lanes + unsigned(__builtin_ctz(left))].more.get();
        if (left == lanes || more != last) {
            Times times = base;
            for (size_t i = 0; more && i < times.size(); i++)
                times[i] = std::max(times[i], more->all);
            for (size_t i = 0; more && i < more->later.size(); i++) {
                auto [actor, time] = more->later[i];
                times[actor] = std::max(times[actor], time);
            }
            for (size_t i = 0; i < all.size(); i++)
                all[i] = left == lanes ? times[i] : std::min(all[i], times[i]);
        }
        last = more;
    }
    if (lanes && !(lanes & (lanes - 1))) {
        unsigned thread = warp * warp_lanes + unsigned(__builtin_ctz(lanes));
        all[thread] = now(thread);
        for_each_plane(warp, lanes,
                       [&](unsigned actor) { all[actor] = std::max(all[actor], finished(actor)); });
    }
    return all;
}

Clocks::Times Clocks::known_to_any(unsigned warp, uint32_t lanes) const {
    Times any = base_times(warp);
    const Epochs *last = nullptr;
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned thread = warp * warp_lanes + unsigned(__builtin_ctz(left));
        const Epochs *more = threads_[thread].more.get();
        for (size_t i = 0; more && more != last && i < any.size(); i++)
            any[i] = std::max(any[i], more->all);
        for (size_t i = 0; more && more != last && i < more->later.size(); i++) {
            auto [actor, time] = more->later[i];
            any[actor] = std::max(any[actor], time);
        }
        any[thread] = now(thread);
        last = more;
    }
    for_each_plane(warp, lanes,
                   [&](unsigned actor) { any[actor] = std::max(any[actor], finished(actor)); });
    return any;
}

void Clocks::meet_all() {
    base_ = latest_++;
    for (Warp &warp : warps_)
        warp = {0, latest_, true};
    for (unsigned number : touched_) {
        Thread &thread = threads_[number];
        others_.learn(thread.others);
        for (size_t i = 0; !finished_.empty() && thread.more && i < thread.more->later.size(); i++)
            if (auto [actor, time] = thread.more->later[i]; actor >= actors_.stride) {
                uint32_t &known = finished_[actor - actors_.stride].block;
                known = std::max(known, time);
                any_finished_ = true;
            }
        thread.others = {};
        thread.more = {};
    }
    if (!any_finished_)
        return;
    for (unsigned actor = actors_.stride; actor < actors_.count(); actor++) {
        Finished &known = finished_[actor - actors_.stride];
        known.block = std::max(known.block, finished(actor));
    }
}

uint32_t Clocks::level(unsigned number, uint32_t lanes) {
    unsigned first = number * warp_lanes;
    uint32_t latest = 0;
    for (uint32_t left = lanes; left; left &= left - 1)
        latest = std::max(latest, now(first + unsigned(__builtin_ctz(left))));
    for (uint32_t left = lanes; left && !warps_[number].same; left &= left - 1)
        epochs_[first + unsigned(__builtin_ctz(left))] = latest;
    return latest;
}

// Advances the times of these lanes.
void Clocks::advance(unsigned number, uint32_t lanes) {
    Warp &warp = warps_[number];
    unsigned first = number * warp_lanes;
    if (warp.same && lanes == ~uint32_t{0}) {
        latest_ = std::max(latest_, ++warp.now);
        return;
    }
    if (warp.same)
        std::fill_n(&epochs_[first], warp_lanes, warp.now);
    warp.same = false;
    for (uint32_t left = lanes; left; left &= left - 1)
        latest_ = std::max(latest_, ++epochs_[first + unsigned(__builtin_ctz(left))]);
}

void Clocks::meet(unsigned number, uint32_t lanes, uint32_t all_lanes) {
    unsigned first = number * warp_lanes;
    Warp &warp = warps_[number];
    bool all = lanes == all_lanes;
    if (all) {
        if (!warp.same)
            warp.now = *std::max_element(&epochs_[first], &epochs_[first] + warp_lanes);
        warp.base = warp.now++;
        warp.same = true;
        latest_ = std::max(latest_, warp.now);
        if (any_finished_)
            for_each_plane(number, ~uint32_t{0}, [&](unsigned actor) {
                Finished &finished = finished_[actor - actors_.stride];
                finished.warp = std::max(finished.warp, finished.own);
            });
    }
    if (all && !has_learned())
        return;
    EpochsPtr more;
    Known others;
    if (!all) {
        auto *own = new Epochs;
        for (uint32_t left = lanes; left; left &= left - 1) {
            unsigned thread = first + unsigned(__builtin_ctz(left));
            own->later.emplace_back(thread, now(thread));
        }
        for_each_plane(number, lanes, [&](unsigned actor) {
            if (finished(actor))
                own->later.emplace_back(actor, finished(actor));
        });
        more = own;
        advance(number, lanes);
    }
    for (uint32_t left = lanes; left; left &= left - 1) {
        const Thread &thread = threads_[first + unsigned(__builtin_ctz(left))];
        more = joined(more, thread.more);
        others.learn(thread.others);
    }
    if (!more && !others)
        return;
    for (uint32_t left = lanes; left; left &= left - 1) {
        Thread &thread = touch(first + unsigned(__builtin_ctz(left)));
        thread.more = more;
        thread.others = others;
    }
}

const Known &Clocks::Snapshot::all(uint32_t block) {
    if (own)
        known.learn(block, std::exchange(own, {}));
    return known;
}

Known Clocks::gather(unsigned number, uint32_t lanes, bool with_own) {
    return snapshot(number, lanes, with_own).all(block_);
}

Clocks::Snapshot Clocks::snapshot(unsigned number, uint32_t lanes, bool with_own) {
    unsigned first = number * warp_lanes;
    auto *own = new Epochs;
    own->all = base_;
    EpochsPtr more = own;
    Known all = others_;
    for (unsigned lane = 0; lane < warp_lanes; lane++) {
        bool tells = with_own && lanes >> lane & 1;
        uint32_t time = tells ? now(first + lane) : warps_[number].base;
        if (time > base_)
            own->later.emplace_back(first + lane, time);
    }
    for (unsigned actor = actors_.stride; any_finished_ && actor < actors_.count(); actor++)
        if (uint32_t time = known_of_actor(number, lanes, actor))
            own->later.emplace_back(actor, time);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const Thread &thread = threads_[first + unsigned(__builtin_ctz(left))];
        more = joined(more, thread.more);
        all.learn(thread.others);
    }
    advance(number, lanes);
    return {std::move(all), std::move(more)};
}

void Clocks::learn(unsigned thread, const Known &known) {
    if (const Epochs *own = known.find(block_))
        learn_own(thread, own);
    touch(thread).others.learn(known);
}

void Clocks::learn_own(unsigned thread, const EpochsPtr &epochs) {
    EpochsPtr &more = touch(thread).more;
    more = joined(more, epochs);
}

void Clocks::release(unsigned thread, bool only_block) {
    Thread &own = touch(thread);
    Snapshot now = snapshot(thread / warp_lanes, 1u << thread % warp_lanes, true);
    if (only_block || actors_.acquire_in_block)
        own.released.block = now;
    if (!only_block)
        own.released.everyone = std::move(now);
}

void Clocks::acquire(unsigned thread, bool only_block) {
    take_in(thread, threads_[thread].seen, only_block);
    Thread &own = touch(thread);
    own.acquired_in_block = now(thread);
    own.acquired = only_block ? own.acquired : own.acquired_in_block;
}

bool Clocks::has_acquired(unsigned thread, uint32_t since, bool only_block) const {
    const Thread &own = threads_[thread];
    return (only_block ? own.acquired_in_block : own.acquired) >= since;
}

bool Clocks::has_seen(unsigned thread, uint32_t block, unsigned other, uint32_t epoch) const {
    auto covers = [&](const Known &known) {
        const Epochs *found = known.find(block);
        return found && found->of(other) >= epoch;
    };
    const Told &seen = threads_[thread].seen;
    return covers(seen.everyone) || covers(seen.block);
}

void Clocks::take_in(unsigned thread, const Told &told, bool only_block) {
    if (told.block && told.of == block_)
        learn(thread, told.block);
    if (!only_block)
        learn(thread, told.everyone);
}

Told Clocks::told(unsigned thread, uint64_t word, bool releases, bool only_block) {
    Released &at_fences = threads_[thread].released;
    Told told{at_fences.everyone.all(block_), at_fences.block.all(block_), block_};
    const auto &words = threads_[thread].words;
    if (auto known = words.find(word); known != words.end())
        told.add(known->second.released);
    if (!releases)
        return told;
    Known known = tell(thread / warp_lanes, 1u << thread % warp_lanes);
    if (only_block || actors_.acquire_in_block)
        told.block = known;
    if (!only_block)
        told.everyone = known;
    touch(thread).words[word].released = told;
    return told;
}

void Clocks::see(unsigned thread, uint64_t word, const Told &told, bool acquires, bool only_block) {
    if (told) {
        Thread &own = touch(thread);
        own.seen.add(told);
        own.words[word].seen.add(told);
    }
    const auto &words = threads_[thread].words;
    if (auto known = words.find(word); acquires && known != words.end())
        take_in(thread, known->second.seen, only_block);
}

} // namespace soft::check
