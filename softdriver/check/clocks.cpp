#include "check/clocks.h"

#include <algorithm>

namespace soft::check {

namespace {

constexpr unsigned warp_lanes = 32;

uint32_t at(const EpochsPtr &epochs, size_t thread) { return epochs ? (*epochs)[thread] : 0; }

} // namespace

EpochsPtr joined(const EpochsPtr &a, const EpochsPtr &b) {
    if (!b || a == b)
        return a;
    if (!a)
        return b;
    bool only_a = true, only_b = true;
    for (size_t i = 0; i < a->size(); i++) {
        only_a &= (*a)[i] >= (*b)[i];
        only_b &= (*b)[i] >= (*a)[i];
    }
    if (only_a || only_b)
        return only_a ? a : b;
    auto later = std::make_shared<Epochs>(*a);
    for (size_t i = 0; i < later->size(); i++)
        (*later)[i] = std::max((*later)[i], (*b)[i]);
    return later;
}

const EpochsPtr *Known::find(uint32_t block) const {
    const Node *node = root_.get();
    for (unsigned level = levels; node && level--;)
        node = node->next[block >> level * bits & ((1u << bits) - 1)].get();
    return node ? &node->epochs : nullptr;
}

Known::NodePtr Known::with(const NodePtr &node, unsigned level, uint32_t block,
                           const EpochsPtr &epochs) {
    auto changed = node ? std::make_shared<Node>(*node) : std::make_shared<Node>();
    if (!level) {
        changed->epochs = joined(changed->epochs, epochs);
        return changed;
    }
    NodePtr &next = changed->next[block >> (level - 1) * bits & ((1u << bits) - 1)];
    next = with(next, level - 1, block, epochs);
    return changed;
}

Known::NodePtr Known::merged(const NodePtr &a, const NodePtr &b) {
    if (!b || a == b)
        return a;
    if (!a)
        return b;
    auto both = std::make_shared<Node>();
    bool only_a = true, only_b = true;
    auto add = [&](const auto &result, const auto &from_a, const auto &from_b) {
        only_a &= result == from_a;
        only_b &= result == from_b;
    };
    both->epochs = joined(a->epochs, b->epochs);
    add(both->epochs, a->epochs, b->epochs);
    for (size_t i = 0; i < both->next.size(); i++) {
        both->next[i] = merged(a->next[i], b->next[i]);
        add(both->next[i], a->next[i], b->next[i]);
    }
    return only_a ? a : only_b ? b : both;
}

void Known::learn(uint32_t block, const EpochsPtr &epochs) {
    const EpochsPtr *known = find(block);
    if (!known || joined(*known, epochs) != *known)
        root_ = with(root_, levels, block, epochs);
}

void Known::learn(const Known &other) { root_ = merged(root_, other.root_); }

void Told::add(const Told &other) {
    everyone.learn(other.everyone);
    if (other.block && of != other.of)
        block = {};
    if (other.block)
        of = other.of;
    block.learn(other.block);
}

Clocks::Clocks(unsigned threads)
    : epochs_((threads + warp_lanes - 1) / warp_lanes * warp_lanes, 1), block_base_(epochs_.size()),
      warp_base_(epochs_.size()), threads_(epochs_.size()) {}

void Clocks::begin(uint32_t block) {
    block_ = block;
    std::fill(epochs_.begin(), epochs_.end(), 1);
    std::fill(block_base_.begin(), block_base_.end(), 0);
    std::fill(warp_base_.begin(), warp_base_.end(), 0);
    if (learned_)
        std::fill(threads_.begin(), threads_.end(), Thread());
    learned_ = false;
}

uint32_t Clocks::known(unsigned thread, unsigned other) const {
    uint32_t time = std::max(block_base_[other], at(threads_[thread].more, other));
    return thread / warp_lanes == other / warp_lanes ? std::max(time, warp_base_[other]) : time;
}

int Clocks::unknown(unsigned thread, uint32_t block, unsigned warp, uint32_t lanes,
                    uint32_t epoch) const {
    const EpochsPtr *others = block == block_ ? nullptr : threads_[thread].others.find(block);
    for (; lanes; lanes &= lanes - 1) {
        unsigned lane = unsigned(__builtin_ctz(lanes)), other = warp * warp_lanes + lane;
        if (block == block_ ? other != thread && known(thread, other) < epoch
                            : !others || at(*others, other) < epoch)
            return int(lane);
    }
    return -1;
}

void Clocks::meet_all() {
    block_base_ = epochs_;
    for (uint32_t &epoch : epochs_)
        epoch++;
    if (!learned_)
        return;
    Known all;
    for (Thread &thread : threads_) {
        all.learn(thread.others);
        thread.more = nullptr;
    }
    for (Thread &thread : threads_)
        thread.others = all;
}

void Clocks::meet(unsigned warp, uint32_t lanes, uint32_t live) {
    unsigned first = warp * warp_lanes;
    if ((live & ~lanes) == 0) // all lanes, without those that have ended
        std::copy_n(&epochs_[first], warp_lanes, &warp_base_[first]);
    bool plain = (live & ~lanes) == 0;
    if (plain && !learned_) {
        for (uint32_t left = lanes; left; left &= left - 1)
            epochs_[first + unsigned(__builtin_ctz(left))]++;
        return;
    }
    learned_ = true;
    EpochsPtr more;
    Known others;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const Thread &thread = threads_[first + unsigned(__builtin_ctz(left))];
        more = joined(more, thread.more);
        others.learn(thread.others);
    }
    if (!plain) {
        auto own = std::make_shared<Epochs>(epochs_.size());
        for (uint32_t left = lanes; left; left &= left - 1) {
            size_t lane = first + unsigned(__builtin_ctz(left));
            (*own)[lane] = epochs_[lane];
        }
        more = joined(more, own);
    }
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned lane = first + unsigned(__builtin_ctz(left));
        threads_[lane].more = more;
        threads_[lane].others = others;
        epochs_[lane]++;
    }
}

Known Clocks::tell(unsigned warp, uint32_t lanes) {
    unsigned first = warp * warp_lanes;
    auto own = std::make_shared<Epochs>(block_base_);
    std::copy_n(&warp_base_[first], warp_lanes, &(*own)[first]);
    for (unsigned lane = first; lane < first + warp_lanes; lane++)
        (*own)[lane] = std::max((*own)[lane], block_base_[lane]);
    Known all;
    EpochsPtr more;
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned lane = first + unsigned(__builtin_ctz(left));
        (*own)[lane] = epochs_[lane]++;
        more = joined(more, threads_[lane].more);
        all.learn(threads_[lane].others);
    }
    all.learn(block_, joined(own, more));
    return all;
}

void Clocks::learn(unsigned thread, const Known &known) {
    learned_ = true;
    if (const EpochsPtr *own = known.find(block_))
        learn_own(thread, *own);
    threads_[thread].others.learn(known);
}

void Clocks::learn_own(unsigned thread, const EpochsPtr &epochs) {
    learned_ = true;
    threads_[thread].more = joined(threads_[thread].more, epochs);
}

void Clocks::release(unsigned thread, bool only_block) {
    learned_ = true;
    Told &released = threads_[thread].released;
    threads_[thread].released_at = epochs_[thread];
    Known known = tell(thread / warp_lanes, 1u << thread % warp_lanes);
    released.of = block_;
    (only_block ? released.block : released.everyone) = known;
}

void Clocks::acquire(unsigned thread, bool only_block) {
    take_in(thread, threads_[thread].seen, only_block);
}

void Clocks::take_in(unsigned thread, const Told &told, bool only_block) {
    if (told.block && told.of == block_)
        learn(thread, told.block);
    if (!only_block)
        learn(thread, told.everyone);
    else if (const EpochsPtr *own = told.everyone.find(block_))
        learn_own(thread, *own);
}

Told Clocks::told(unsigned thread, bool releases, bool only_block) {
    Told told = threads_[thread].released;
    if (releases)
        (only_block ? told.block : told.everyone) =
            tell(thread / warp_lanes, 1u << thread % warp_lanes);
    told.of = block_;
    if (only_block) {
        told.block.learn(told.everyone);
        told.everyone = {};
    }
    return told;
}

void Clocks::see(unsigned thread, const Told &told, bool acquires, bool only_block) {
    if (acquires)
        take_in(thread, told, only_block);
    learned_ = true;
    Told &seen = threads_[thread].seen;
    seen.everyone.learn(told.everyone);
    if (told.block && told.of == block_) {
        seen.of = block_;
        seen.block.learn(told.block);
    }
}

} // namespace soft::check
