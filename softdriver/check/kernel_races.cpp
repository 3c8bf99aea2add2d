#include "check/kernel_races.h"

#include "ptx/access.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace soft::check {

using ptx::Effect;
using ptx::Space;
using ptx::warp_size;

namespace {

constexpr size_t most_stored = 64; // most bytes that a lane stores at once
// A word with more accesses than this also drops those that are rarely needed.
constexpr size_t crowded = 16;

// Copies the bytes that a lane stores.
void copy_value(const ptx::Warp &warp, const ptx::Step &step, const Effect &effect, unsigned lane,
                char *to) {
    for (unsigned i = 0; i < effect.count; i++)
        memcpy(to + i * effect.item_bytes, warp.row<char>(step.rows[i]) + lane * effect.value_bytes,
               effect.item_bytes);
}

// A number for the values that some lanes store: equal values of all lanes give an even number,
// others an odd one.
struct StoredValue {
    static constexpr uint64_t odd = 0x9e3779b97f4a7c15;
    uint64_t first = 0, sum = 0, weight = 1;
    bool same = true;

    void add(uint64_t value) {
        first = weight == 1 ? value : first;
        same = same && value == first;
        sum += value * weight;
        weight += 2 * odd;
    }
    uint32_t number() const {
        return same ? uint32_t(first * odd >> 32) & ~1u : uint32_t(sum >> 32) | 1;
    }
};

// Returns the StoredValue::number() of what these lanes store, if each stores one item.
template <class T>
uint32_t stored_value(const ptx::Warp &warp, const ptx::Step &step, uint32_t lanes) {
    const T *values = warp.row<T>(step.rows[0]);
    StoredValue stored;
    for (uint32_t left = lanes; left; left &= left - 1)
        stored.add(values[__builtin_ctz(left)]);
    return stored.number();
}

uint32_t stored_value(const ptx::Warp &warp, const ptx::Step &step, const Effect &effect,
                      uint32_t lanes) {
    bool whole = effect.count == 1 && effect.item_bytes == effect.value_bytes;
    if (whole && effect.item_bytes == 4)
        return stored_value<uint32_t>(warp, step, lanes);
    if (whole && effect.item_bytes == 8)
        return stored_value<uint64_t>(warp, step, lanes);
    StoredValue stored;
    for (uint32_t left = lanes; left; left &= left - 1) {
        char bytes[most_stored] = {};
        copy_value(warp, step, effect, unsigned(__builtin_ctz(left)), bytes);
        uint64_t value = 0;
        for (size_t done = 0; done < size_t(effect.item_bytes) * effect.count; done += 8) {
            uint64_t part = 0;
            memcpy(&part, bytes + done, sizeof part);
            value = value * StoredValue::odd + part;
        }
        stored.add(value);
    }
    return stored.number();
}

// Returns the lowest `count` of some lanes.
uint32_t lowest_lanes(uint32_t lanes, unsigned count) {
    uint32_t from_0 = lanes >> __builtin_ctz(lanes);
    if (!(from_0 & (from_0 + 1))) // there are no gaps
        return lanes & uint32_t(((uint64_t{1} << count) - 1) << __builtin_ctz(lanes));
    uint32_t left = lanes;
    while (count--)
        left &= left - 1;
    return lanes & ~left;
}

// Returns advice on how to fix a race.
std::string remedy(const Entry &earlier, const Entry &later, const HazardAccess &first,
                   const HazardAccess &second, bool shared) {
    if (earlier.block != later.block)
        return "use atomics, or launch the two as two kernels";
    bool in_order = first.ptx_line <= second.ptx_line;
    std::string between = " between " + (in_order ? first : second).place + " and " +
                          (in_order ? second : first).place;
    if (first.place == second.place)
        between = " so that it runs between the two";
    if (earlier.strong != later.strong)
        return "use an atomic for both, or add __syncthreads()" + between;
    if (earlier.warp == later.warp && shared)
        return "add __syncwarp() or __syncthreads()" + between;
    return "add __syncthreads()" + between;
}

// Returns whether two accesses of the same bytes are both atomic, each for the thread of the other
// one.
bool are_atomic(const Span &one, const Span &other) {
    return one.strong && one.strong == other.strong &&
           (one.block == other.block || !(one.only_block || other.only_block));
}

// Returns the lanes of a warp that the block has, also those that have ended. These do not arrive
// at later barriers, so nothing orders their accesses before such a barrier.
uint32_t lanes_in(const ptx::ThreadBlock &block, unsigned warp) {
    unsigned left = block.machine.threads - warp * warp_size;
    return left < warp_size ? (1u << left) - 1 : ~uint32_t{0};
}

// Returns true if the scope is a block, which does not order threads of different blocks.
bool is_block_scope(const Effect &effect) { return effect.scope == Effect::Scope::Block; }

} // namespace

void KernelRaces::run(ptx::Warp &warp, const ptx::Step &step) {
    const Effect &effect = effect_of(warp, step);
    // Fast path: most steps do nothing that can race.
    if (effect.kind == Effect::Kind::None)
        return step.run(warp, step);
    before(warp, step, effect);
    knows_uses = effect.says_all();
    step.run(warp, step);
    knows_uses = false;
    after(warp, step, effect);
}

void KernelRaces::before(ptx::Warp &warp, const ptx::Step &step, const Effect &effect) {
    switch (effect.kind) {
    case Effect::Kind::Fence: {
        Clocks &clocks = state_of(warp.block).clocks;
        for (uint32_t left = lanes_of(warp, step); left; left &= left - 1) {
            unsigned thread = warp.number * warp_size + unsigned(__builtin_ctz(left));
            if (effect.acquires)
                clocks.acquire(thread, is_block_scope(effect));
            if (effect.releases)
                clocks.release(thread, is_block_scope(effect));
        }
        break;
    }
    case Effect::Kind::Read:
    case Effect::Kind::Write:
    case Effect::Kind::Update:
        if (effect.actor != Effect::Actor::Thread)
            return collect(warp, step);
        access(warp, step, effect, lanes_of(warp, step) & effect.lanes);
        break;
    case Effect::Kind::Other:
        return collect(warp, step);
    case Effect::Kind::Test:
        testing_ = lanes_of(warp, step); // the step may change its guard
        break;
    case Effect::Kind::Proxy:
        return fence_proxies(warp, effect, lanes_of(warp, step));
    case Effect::Kind::Commit:
    case Effect::Kind::Await:
        return groups(warp, effect, lanes_of(warp, step));
    default:
        break;
    }
}

void KernelRaces::after(ptx::Warp &warp, const ptx::Step &step, const Effect &effect) {
    if (effect.kind == Effect::Kind::Test)
        see_phases(warp, step, effect, testing_ & warp.predicate(step.rows[0]));
    else if (collects_)
        finish(warp, step, effect);
}

KernelRaces::Block &KernelRaces::state_of(const ptx::ThreadBlock &block) {
    if (&block != last_) {
        last_ = &block;
        last_block_ = blocks_.at(&block).get();
    }
    return *last_block_;
}

void KernelRaces::access(ptx::Warp &warp, const ptx::Step &step, const Effect &effect,
                         uint32_t lanes) {
    looked_at_ = 0;
    if (!lanes || effect.space == Space::Local || effect.space == Space::Param ||
        effect.space == Space::Const)
        return;
    addresses_.find(warp, step, effect, lanes);
    Now now{warp, step, effect, state_of(warp.block), size_t(effect.item_bytes) * effect.count};
    if (effect.noncoherent)
        find_unseen_writes(now, lanes);
    Entry entry = entry_of(warp, step, effect);
    if (effect.blind)
        looked_at_ = add_blind(now, entry, lanes);
    if (looked_at_ == lanes)
        return;
    if (looked_at_) // the runs of the other lanes
        addresses_.find(warp, step, effect, lanes & ~looked_at_);
    for (const Run &run : addresses_) {
        access(now, run, entry);
        looked_at_ |= run.lanes;
    }
}

// Fast path: atomics of words whose accesses are all such atomics, as in a histogram. They race
// with none of them. Returns the lanes that are finished by this.
uint32_t KernelRaces::add_blind(const Now &now, Entry entry, uint32_t lanes) {
    if (now.bytes != word_bytes || now.effect.releases || !addresses_.in_one_space() ||
        roles_.any() || now.block.clocks.has_learned() || !now.block.clocks.is_same(entry.warp))
        return 0;
    bool shared = addresses_.space(first_of(lanes)) == Space::Shared;
    bool global = addresses_.space(first_of(lanes)) == Space::Global && !between_;
    if (!(shared || global) || !(shared ? now.block.signals : signals_).empty())
        return 0;
    entry.bytes = bytes_of_word(0, word_bytes);
    entry.epoch = now.block.clocks.now(now.warp.number * warp_size + first_of(lanes));
    uint32_t known = 0;
    for (uint32_t left = lanes; left; left &= left - 1) {
        uint64_t address = addresses_[first_of(left)];
        if (address % word_bytes || (shared && address + word_bytes > machine_.shared_bytes))
            continue;
        Line &line = line_of(now.block, shared, address / line_bytes);
        if (!line.has_cells())
            continue;
        Cell &cell = line.cell(address / word_bytes % line_words);
        Entry *same = cell.are_blind_like(entry) ? cell.find_like(entry) : nullptr;
        if (!same)
            continue;
        // The entry keeps the number of its earlier write: no access has looked at the word since
        // then.
        same->lanes |= left & -left;
        known |= left & -left;
    }
    return known;
}

void KernelRaces::access(const Now &now, const Run &run, const Entry &entry) {
    size_t size = now.bytes;
    bool is_aligned = !((run.first | run.stride) & (size - 1)) && !(size & (size - 1));
    bool in_lines = size && size < line_bytes && is_aligned && addresses_.in_one_space() &&
                    (!entry.strong || now.effect.blind);
    Span span;
    span.block = entry.block;
    span.place = entry.place;
    span.warp = entry.warp;
    span.size = uint8_t(size);
    span.writes = entry.writes;
    span.only_block = entry.only_block;
    span.strong = entry.size;
    if (in_lines && (!entry.strong || tells_nothing(now, run))) {
        access_lines(now, run, span);
        if (span.is_weak_write())
            forget(now, run);
        return;
    }
    for (uint32_t left = run.lanes; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        bool shared = addresses_.space(lane) == Space::Shared;
        Lane one{now, lane, left & -left, addresses_[lane], shared};
        if (shared ? one.address + size > machine_.shared_bytes
                   : addresses_.space(lane) != Space::Global)
            continue; // if it is outside, the step ends the launch with an error
        if (in_lines)
            access_lines(now, {one.address, 0, one.lanes, 1}, span);
        else
            access(one, entry);
        signal(one);
        looked_at_ |= one.lanes;
    }
}

// Returns whether the strong accesses of a run pass nothing on to others and learn nothing.
bool KernelRaces::tells_nothing(const Now &now, const Run &run) const {
    bool shared = addresses_.space(unsigned(__builtin_ctz(run.lanes))) == Space::Shared;
    return !now.effect.releases && !now.block.clocks.has_learned() &&
           (shared ? now.block.signals : signals_).empty();
}

// The fields of an entry that are equal for all lanes of an access.
Entry KernelRaces::entry_of(const ptx::Warp &warp, const ptx::Step &step,
                            const Effect &effect) const {
    Entry entry;
    entry.block = uint32_t(warp.block.number);
    entry.place = place_of(warp, step);
    entry.warp = uint8_t(warp.number);
    entry.writes = effect.kind != Effect::Kind::Read;
    entry.strong = effect.strong;
    entry.only_block = is_block_scope(effect);
    entry.size = effect.strong ? effect.item_bytes : 0;
    entry.sees = effect.strong && effect.kind != Effect::Kind::Write && !effect.blind;
    return entry;
}

Line &KernelRaces::line_of(Block &block, bool shared, uint64_t line) {
    if (!shared)
        return between_ ? own_line(block, line) : global_[line];
    block.shared[line].begin(block.generation);
    return block.shared[line];
}

// Returns a line of global memory for a block that does not communicate. The accesses of blocks
// that have ended are dropped from it. If it belongs to another block that runs, this one gets
// another line.
Line &KernelRaces::own_line(Block &block, uint64_t number) {
    Line &line = global_[number];
    if (line.generation() == block.first_generation)
        return line;
    bool is_taken = active_.size() > 1 &&
                    std::find(active_.begin(), active_.end(), line.generation()) != active_.end();
    if (is_taken || (!block.global.empty() && block.global.count(number)))
        return block.global[number];
    line.begin(block.first_generation);
    return line;
}

// Keeps an access for comparisons between blocks.
void KernelRaces::keep_between_blocks(const Now &now, Span span, uint64_t line) {
    // The time of an access has no meaning in other blocks. Only the stored value matters.
    span.epoch =
        span.is_weak_write() ? stored_value(now.warp, now.step, now.effect, span.lanes) : 0;
    between_->add(line, {span});
}

// Fast path: the accesses of a run are compared and kept line by line.
void KernelRaces::access_lines(const Now &now, const Run &run, Span span) {
    unsigned lane = unsigned(__builtin_ctz(run.lanes));
    bool shared = addresses_.space(lane) == Space::Shared;
    if (!shared && addresses_.space(lane) != Space::Global)
        return;
    uint64_t at = run.first, last = run.first + (run.count - 1) * run.stride;
    bool outside = shared && last + now.bytes > machine_.shared_bytes;
    bool race = span.is_weak_write() && !run.stride; // of the lanes of this step
    if (run.count > 1 && (race || outside || !is_at_one_time(now, run))) {
        for (uint32_t left = run.lanes; left; left &= left - 1) {
            lane = unsigned(__builtin_ctz(left));
            access_lines(now, {addresses_[lane], 0, left & -left, 1}, span);
            looked_at_ |= left & -left;
        }
        return;
    }
    if (outside)
        return; // the step ends the launch with an error
    span.epoch = now.block.clocks.now(now.warp.number * warp_size + lane);
    unsigned rest = run.count;
    for (uint32_t left = run.lanes; left; left &= ~span.lanes) {
        uint64_t line = at / line_bytes;
        unsigned begin = at % line_bytes, count = rest;
        if (run.stride && last / line_bytes != line)
            count = unsigned((line_bytes - begin - 1) / run.stride + 1);
        span.lanes = lowest_lanes(left, count);
        span.begin = uint8_t(begin);
        span.end = uint8_t(begin + (count - 1) * run.stride + span.size);
        span.stride = uint8_t(count > 1 ? run.stride : 0);
        if (!add_span(now.block, line_of(now.block, shared, line), span))
            look_at_each(now, span, line * line_bytes, shared);
        if (between_ && !shared)
            keep_between_blocks(now, span, line);
        at += count * run.stride;
        rest -= count;
    }
}

bool KernelRaces::is_at_one_time(const Now &now, const Run &run) const {
    const Clocks &clocks = now.block.clocks;
    if (clocks.is_same(now.warp.number))
        return true;
    unsigned first = now.warp.number * warp_size;
    uint32_t different = 0, time = clocks.now(first + unsigned(__builtin_ctz(run.lanes)));
    for (uint32_t left = run.lanes; left; left &= left - 1)
        different |= clocks.now(first + unsigned(__builtin_ctz(left))) ^ time;
    return !different;
}

// Adds an access to a line. Returns false if the line needs cells: because the access may race, or
// because there is no room for it.
bool KernelRaces::add_span(const Block &block, Line &line, const Span &span) const {
    constexpr unsigned last_reads = 8;
    if (line.has_cells())
        return false;
    const Span *spans = line.spans();
    unsigned writes = line.writes(), size = line.size();
    // The earlier accesses of the same kind.
    unsigned begin = span.writes ? 0 : writes, end = span.writes ? writes : size;
    bool many = !span.writes && size > writes + last_reads;
    bool may_be_kept = span.strong || (!span.stride && span.lanes & (span.lanes - 1));
    for (unsigned i = many ? size - last_reads : begin; i < end && may_be_kept; i++)
        if (spans[i].is_same(span))
            return true;
    for (unsigned i = 0, others = span.writes ? size : writes; i < others; i++)
        if (!are_atomic(span, spans[i]) && !is_behind(block, span, spans[i]))
            return false;
    // If enough other blocks have made such accesses, this one need not be kept: a later access
    // that races with it also races with one of them.
    size_t others = 0, enough = span.writes ? most_entries : most_readers;
    bool of_one_block = line.generation() != 0;
    for (unsigned i = begin; i < end && !span.is_weak_write() && !of_one_block; i++) {
        others += spans[i].block != span.block && spans[i].covers(span) &&
                  (!spans[i].strong || span.strong);
        if (others == enough)
            return true;
    }
    drop_superfluous(block, line, span);
    return line.add(span);
}

// Drops earlier accesses of a line that are not needed if this one is kept: what races with one of
// them races with this one, too. A weak access stays when a strong one comes: a later strong access
// races only with the weak one. Looks only at the last ones while there is room for more.
void KernelRaces::drop_superfluous(const Block &block, Line &line, const Span &span) const {
    constexpr unsigned last = 4;
    const Span *spans = line.spans();
    unsigned begin = span.writes ? 0 : line.writes();
    unsigned end = span.writes && span.strong ? line.writes() : line.size();
    if (!span.is_weak_write() && !line.full() && end > begin + last)
        begin = end - last;
    for (unsigned i = end; i-- > begin;) {
        bool as_weak = !span.strong ||
                       (spans[i].strong == span.strong && span.only_block >= spans[i].only_block);
        bool replaces =
            span.is_weak_write() || (as_weak && is_clearly_behind(block, span, spans[i]));
        if (replaces && span.covers(spans[i]))
            line.drop(i);
    }
}

// Fast path of is_behind(): finds only the frequent cases.
bool KernelRaces::is_clearly_behind(const Block &block, const Span &span, const Span &old) const {
    if (old.block != span.block)
        return false;
    bool same_warp = old.warp == span.warp;
    return old.epoch <= block.clocks.known_to_block() ||
           (same_warp &&
            (old.epoch <= block.clocks.known_to_warp(span.warp) || span.has_threads(old)));
}

// Returns whether each thread of the access `span` knows that the earlier access `old` to the same
// bytes is done.
bool KernelRaces::is_behind(const Block &block, const Span &span, const Span &old) const {
    if (!span.overlaps(old) || is_clearly_behind(block, span, old))
        return true;
    const Clocks &clocks = block.clocks;
    bool same_warp = old.block == span.block && old.warp == span.warp;
    if (!same_warp && !clocks.has_learned() && !span.has_gaps() && !old.has_gaps() &&
        old.warp < block.met.size()) // not the span of an actor
        return false;
    bool behind = true;
    span.each([&](uint32_t lanes, unsigned at) {
        uint32_t others = old.lanes_at(at, at + span.size);
        for (uint32_t left = others ? lanes : 0; left && behind; left &= left - 1) {
            unsigned thread = span.warp * warp_size + unsigned(__builtin_ctz(left));
            behind = clocks.unknown(thread, old.block, old.warp, others, old.epoch) < 0;
        }
    });
    return behind;
}

// Compares the accesses of a span with those in the cells of the line that begins at `line`.
void KernelRaces::look_at_each(const Now &now, const Span &span, uint64_t line, bool shared) {
    Entry entry = as_entry(span);
    span.each([&](uint32_t lanes, unsigned at) {
        entry.lanes = lanes;
        look_at_words({now, unsigned(__builtin_ctz(lanes)), lanes, line + at, shared}, entry);
        looked_at_ |= lanes;
    });
}

// Forgets what strong writes have passed on through bytes that weak writes now overwrite.
void KernelRaces::forget(const Now &now, const Run &run) {
    unsigned lane = unsigned(__builtin_ctz(run.lanes));
    bool shared = addresses_.space(lane) == Space::Shared;
    Signals &signals = shared ? now.block.signals : signals_;
    if (signals.empty())
        return;
    for (uint32_t left = run.lanes; left; left &= left - 1)
        signals.overwrite(addresses_[unsigned(__builtin_ctz(left))], now.bytes);
}

// A strong access, or one of an unusual size.
void KernelRaces::access(const Lane &access, Entry entry) {
    entry.lanes = access.lanes;
    see(access);
    entry.epoch = access.now.block.clocks.now(access.thread());
    look_at_words(access, entry);
    if (!between_ || access.shared)
        return;
    Span span;
    span.block = entry.block;
    span.lanes = entry.lanes;
    span.place = entry.place;
    span.warp = entry.warp;
    span.writes = entry.writes;
    span.only_block = entry.only_block;
    span.strong = entry.size;
    uint64_t end = access.address + access.now.bytes;
    for (uint64_t at = access.address, next; at < end; at = next) {
        next = std::min(end, (at / line_bytes + 1) * line_bytes);
        span.begin = uint8_t(at % line_bytes);
        span.size = uint8_t(next - at);
        span.end = uint8_t(span.begin + span.size);
        keep_between_blocks(access.now, span, at / line_bytes);
    }
}

void KernelRaces::look_at_words(const Lane &access, Entry entry) {
    uint64_t end = access.address + access.now.bytes;
    for (uint64_t at = access.address, next; at < end; at = next) {
        next = std::min(end, (at / word_bytes + 1) * word_bytes);
        entry.bytes = bytes_of_word(at, next);
        look(access, at / word_bytes, entry);
    }
}

// Compares an access with the earlier ones to the same word, and keeps it.
void KernelRaces::look(const Lane &access, uint64_t word, Entry entry) {
    Line &line = line_of(access.now.block, access.shared, word / line_words);
    if (between_ && !access.shared && !line.has_cells())
        access.now.block.spread.push_back(word / line_words);
    Cell &cell = line.cell(word % line_words);
    number(cell, entry, access.now.effect.kind == Effect::Kind::Update);
    if (entry.has_seen_others())
        (access.shared ? access.now.block.flags : flags_).add(word);
    Entry *same = cell.find_like(entry);
    if (same && !entry.writes && !entry.strong && !(entry.lanes & ~same->lanes))
        return;                    // fast path: the same threads read the same again
    const Entry *lowest = nullptr; // the racing entry with the lowest thread
    unsigned lowest_lane = 0;
    for (size_t i = 0; i < cell.size(); i++) {
        const Entry &earlier = cell[i];
        if (!earlier.overlaps(entry) || !(earlier.writes || entry.writes) ||
            (earlier.is_morally_strong(entry) && !is_async(earlier)))
            continue;
        int other = unordered(access, cell, earlier).second;
        if (other < 0 ||
            (lowest && std::make_pair(lowest->block, actor_of(*lowest, lowest_lane)) <=
                           std::make_pair(earlier.block, actor_of(earlier, unsigned(other)))))
            continue;
        lowest = &earlier;
        lowest_lane = unsigned(other);
    }
    if (lowest) {
        auto [lane, other] = lowest_pair(access, cell, *lowest);
        Lane one = access;
        one.lane = unsigned(lane);
        found(one, word, *lowest, other, entry);
    }
    if (same)
        same->merge(entry);
    else
        keep(access, cell, entry);
}

// Gives a write its number. Finds which write a strong read sees, and which earlier writes it sees
// through a chain of read-modify-writes.
void KernelRaces::number(const Cell &cell, Entry &entry, bool updates) {
    if (entry.writes)
        entry.number = entry.first = ++writes_;
    if (!entry.strong || (entry.writes && !updates))
        return;
    const Entry *last = nullptr;
    for (size_t i = 0; i < cell.size(); i++)
        if (cell[i].writes && cell[i].overlaps(entry) && (!last || last->number < cell[i].number))
            last = &cell[i];
    if (!last || !last->is_morally_strong(entry))
        return;
    entry.first = last->first;
    if (!entry.writes)
        entry.number = last->number;
}

// Returns a lane of the access and a lane of an earlier access that are not ordered, or -1.
std::pair<int, int> KernelRaces::unordered(const Lane &access, const Entry &earlier) const {
    const Clocks &clocks = access.now.block.clocks;
    if (earlier.block == access.now.warp.block.number && earlier.epoch <= clocks.known_to_block())
        return {-1, -1};
    for (uint32_t left = access.lanes; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        int other = clocks.unknown(access.now.warp.number * warp_size + unsigned(lane),
                                   earlier.block, earlier.warp, earlier.lanes, earlier.epoch);
        if (other >= 0)
            return {lane, other};
    }
    return {-1, -1};
}

// The same, but an access also counts as ordered after a strong write if it comes after a strong
// read that has seen this write.
std::pair<int, int> KernelRaces::unordered(const Lane &access, const Cell &cell,
                                           const Entry &earlier) const {
    auto pair = unordered(access, earlier);
    if (pair.second < 0 || !earlier.writes || !earlier.strong)
        return pair;
    Lane one = access;
    for (uint32_t left = access.lanes; left; left &= left - 1) {
        one.lane = unsigned(__builtin_ctz(left));
        one.lanes = left & -left;
        pair = unordered(one, earlier);
        if (pair.second >= 0 && !knows_who_has_seen(one, cell, earlier))
            return pair;
    }
    return {-1, -1};
}

// Of the lanes of two accesses that are not ordered, returns the pair with the lowest lane of the
// access that comes first in the code and, among these pairs, the lowest lane of the other access.
std::pair<int, int> KernelRaces::lowest_pair(const Lane &access, const Cell &cell,
                                             const Entry &earlier) const {
    Lane one = access;
    Entry other = earlier;
    bool in_order = earlier.place <= place_of(access.now.warp, access.now.step);
    uint32_t outer = in_order ? earlier.lanes : access.lanes;
    uint32_t inner = in_order ? access.lanes : earlier.lanes;
    for (uint32_t left = outer; left; left &= left - 1)
        for (uint32_t right = inner; right; right &= right - 1) {
            uint32_t first = left & -left, second = right & -right;
            one.lanes = in_order ? second : first;
            other.lanes = in_order ? first : second;
            auto pair = unordered(one, cell, other);
            if (pair.second >= 0)
                return pair;
        }
    return unordered(access, cell, earlier);
}

// Returns whether a lane knows a strong read that has seen a write.
bool KernelRaces::knows_who_has_seen(const Lane &access, const Cell &cell,
                                     const Entry &write) const {
    const Clocks &clocks = access.now.block.clocks;
    for (size_t i = 0; i < cell.size(); i++) {
        const Entry &other = cell[i];
        if (!other.has_seen(write))
            continue;
        for (uint32_t left = other.lanes; left; left &= left - 1)
            if (clocks.unknown(access.thread(), other.block, other.warp, left & -left,
                               other.epoch) < 0)
                return true;
    }
    return false;
}

// Keeps an access, and drops kept accesses that it makes superfluous, because later accesses that
// race with them race with this one, too.
void KernelRaces::keep(const Lane &access, Cell &cell, const Entry &entry) const {
    size_t readers = 0;
    bool replaces = entry.writes && !entry.strong, is_crowded = cell.size() > crowded;
    for (size_t i = cell.size(); i--;) {
        const Entry &old = cell[i];
        bool apart = old.block != entry.block;
        readers += apart && !old.writes && old.is_as_weak_as(entry);
        if ((old.bytes & ~entry.bytes) || (old.writes && !entry.writes))
            continue;
        if (is_crowded && old.writes && entry.has_met(old)) {
            cell.drop(i);
            continue;
        }
        // A later access may know this one only because it has seen the value.
        bool is_needed = is_crowded ? !entry.has_seen_what(old)
                                    : old.has_seen_others() || (entry.strong && entry.writes);
        if (!replaces && (is_needed || !entry.is_as_weak_as(old)))
            continue;
        if (replaces || (!apart && unordered(access, old).second < 0))
            cell.drop(i);
    }
    bool is_useful =
        entry.writes || readers < most_readers || (entry.has_seen_others() && !is_crowded);
    if (cell.size() < most_entries && is_useful)
        cell.add(entry);
}

Signals &KernelRaces::signals_of(const Lane &access) {
    return access.shared ? access.now.block.signals : signals_;
}

// Calls `act` with each element of a vector access. For the memory model each element is an access.
// The second argument names the memory of the element, whatever its state space is.
template <class Act> void KernelRaces::for_each_element(const Lane &access, Act act) {
    const Effect &effect = access.now.effect;
    for (unsigned i = 0; i < effect.count; i++) {
        uint64_t address = access.address + i * effect.item_bytes;
        act(Signals::Access{address, effect.item_bytes, uint32_t(access.now.warp.block.number),
                            is_block_scope(effect)},
            address << 6 | effect.item_bytes << 1 | access.shared);
    }
}

// A strong read sees what the writers of the value have told.
void KernelRaces::see(const Lane &access) {
    const Effect &effect = access.now.effect;
    Signals &signals = signals_of(access);
    Clocks &clocks = access.now.block.clocks;
    if (!effect.strong || effect.kind == Effect::Kind::Write || effect.blind ||
        (signals.empty() && !clocks.tells(access.thread())))
        return;
    for_each_element(access, [&](const Signals::Access &element, uint64_t word) {
        clocks.see(access.thread(), word, signals.seen_by(element), effect.acquires,
                   element.only_block);
    });
}

// A strong write passes something on to the threads that see it. A weak write ends what was passed
// on before.
void KernelRaces::signal(const Lane &access) {
    const Effect &effect = access.now.effect;
    Signals &signals = signals_of(access);
    Clocks &clocks = access.now.block.clocks;
    if (effect.kind == Effect::Kind::Read)
        return;
    if (!effect.strong)
        return signals.overwrite(access.address, access.now.bytes);
    if (signals.empty() && !clocks.tells(access.thread()) && !effect.releases)
        return; // neither earlier accesses nor this one pass anything on
    for_each_element(access, [&](const Signals::Access &element, uint64_t word) {
        Told told = clocks.told(access.thread(), word, effect.releases, element.only_block);
        signals.write(element, told, effect.kind == Effect::Kind::Update);
    });
}

void KernelRaces::found(const Lane &access, uint64_t word, const Entry &earlier, int lane,
                        const Entry &later) {
    Clash clash{earlier,
                later,
                unsigned(lane),
                access.lane,
                access.shared,
                access.address,
                access.address + access.now.bytes};
    clash.benign = earlier.writes && !later.strong &&
                   access.now.effect.kind == Effect::Kind::Write &&
                   stores_the_same(access, earlier, word, lane);
    report(access.now.block, clash);
}

void KernelRaces::report(Block &block, const Clash &clash) {
    uint32_t low = std::min(clash.earlier.place, clash.later.place),
             high = std::max(clash.earlier.place, clash.later.place);
    Places places{low, high, clash.benign};
    const Hazards::Key *known = found_.find(places);
    if (!known &&
        !found_.is_new(uint64_t(low) << 33 | uint64_t(high) << 1 | uint64_t(clash.benign)))
        return;
    Who who[] = {
        {clash.earlier.place, clash.earlier.block, actor_of(clash.earlier, clash.earlier_lane)},
        {clash.later.place, clash.later.block, actor_of(clash.later, clash.later_lane)}};
    // Which of two threads accesses first may differ from run to run, so the first one in the code
    // is reported first. A copy always comes after the start of the copy.
    bool exchanges =
        clash.reason == Clash::Reason::Unordered && is_of_threads(clash) && who[1] < who[0];
    if (exchanges)
        std::swap(who[0], who[1]);
    Threads threads{who[0], who[1], clash.begin};
    if (known && lowest_[places] <= threads)
        return report_(*known, clash.benign, nullptr);
    HazardAccess first = described(block, clash.earlier, clash.earlier_lane);
    HazardAccess second = described(block, clash.later, clash.later_lane);
    uintptr_t begin = 0;
    std::string memory = clash.shared ? shared_variable(machine_, clash.begin, begin)
                                      : describe_(clash.begin, begin);
    auto lines = std::minmax(first.ptx_line, second.ptx_line);
    Hazards::Key key{machine_.launch.kernel->name, "race", memory, lines.first, lines.second};
    key = known ? *known : key;
    found_.keep(places, key);
    if (found_.find(places))
        lowest_[places] = threads;
    report_(key, clash.benign, [&] {
        Hazard hazard;
        hazard.kind = "race";
        hazard.kernel = machine_.launch.kernel->name;
        hazard.memory = memory;
        hazard.address = clash.shared ? 0 : begin;
        hazard.start = clash.begin - begin;
        hazard.stop = clash.end - begin;
        hazard.first = exchanges ? second : first;
        hazard.second = exchanges ? first : second;
        hazard.benign = clash.benign;
        if (advise_on_actors(block, clash, hazard))
            return hazard;
        hazard.remedy = advise_on_fences(block, clash);
        if (hazard.remedy.empty())
            hazard.remedy = remedy(clash.earlier, clash.later, first, second, clash.shared);
        return hazard;
    });
}

// If the later thread knows a strong read that has seen a strong write which comes after the
// earlier access, fences would order the two accesses. Returns which fence is missing, or an empty
// text.
std::string KernelRaces::advise_on_fences(Block &block, const Clash &clash) {
    Entry write, read;
    bool in_block = clash.earlier.block == clash.later.block;
    if ((between_ && !in_block) || !find_flag(block, clash, write, read))
        return "";
    unsigned reader = actor_of(read, first_of(read.lanes));
    size_t step;
    bool acquired = code_at(machine_, read.place, step).effects[step].acquires ||
                    block.clocks.has_acquired(reader, read.epoch, in_block);
    bool released =
        block.clocks.has_seen(reader, clash.earlier.block,
                              actor_of(clash.earlier, clash.earlier_lane), clash.earlier.epoch);
    auto at = [&](const Entry &entry) {
        HazardAccess access = described(block, entry, first_of(entry.lanes));
        return " the " + access.mode + " at " + access.place;
    };
    std::string fence = in_block ? "add __threadfence_block()" : "add __threadfence()";
    if (!acquired && !released)
        return write.place == read.place ? fence + " before and after" + at(read)
                                         : fence + " before" + at(write) + " and after" + at(read);
    return !released ? fence + " before" + at(write) : !acquired ? fence + " after" + at(read) : "";
}

// Finds the last such write, and a read of it. If no write is kept, because many threads have
// updated the word, `write` is the update of the reader.
bool KernelRaces::find_flag(Block &block, const Clash &clash, Entry &write, Entry &read) {
    auto follows = [&](const Entry &entry) { // the earlier access, in its block
        bool same = entry.warp == clash.earlier.warp && entry.lanes >> clash.earlier_lane & 1;
        return entry.block == clash.earlier.block && entry.epoch + same > clash.earlier.epoch;
    };
    bool found = false;
    uint32_t last = 0;
    auto look_at = [&](bool shared, uint64_t word) {
        Line &line = line_of(block, shared, word / line_words);
        if (!line.has_cells())
            return;
        Cell &cell = line.cell(word % line_words);
        for (size_t i = 0; i < cell.size(); i++) {
            const Entry &seer = cell[i];
            if (!seer.has_seen_others() || !knows(block, clash, seer))
                continue;
            if (!found && seer.writes && cell.size() > crowded)
                write = read = seer;
            found = found || (seer.writes && cell.size() > crowded);
            for (size_t j = 0; j < cell.size(); j++)
                if (cell[j].writes && follows(cell[j]) && seer.has_seen(cell[j]) &&
                    cell[j].number > last) {
                    write = cell[j];
                    read = seer;
                    last = write.number;
                    found = true;
                }
        }
    };
    for (uint64_t word : block.flags.words)
        look_at(true, word);
    for (uint64_t word : flags_.words)
        look_at(false, word);
    return found;
}

// Returns whether the thread of the later access knows a read of its block.
bool KernelRaces::knows(const Block &block, const Clash &clash, const Entry &read) const {
    unsigned thread = actor_of(clash.later, clash.later_lane);
    return read.block == clash.later.block &&
           block.clocks.unknown(thread, read.block, read.warp, read.lanes & -read.lanes,
                                read.epoch) < 0;
}

// Returns whether a lane stores the bytes that the memory contains already.
bool KernelRaces::stores_the_same(const Lane &access, const Entry &earlier, uint64_t word,
                                  int lane) const {
    char value[most_stored], other[most_stored];
    copy_value(access.now.warp, access.now.step, access.now.effect, access.lane, value);
    size_t bytes = access.now.bytes;
    uint64_t other_at = addresses_[unsigned(lane)];
    bool in_this_step = earlier.warp == access.now.warp.number && looked_at_ >> lane & 1 &&
                        (addresses_.space(unsigned(lane)) == Space::Shared) == access.shared &&
                        earlier.block == access.now.warp.block.number &&
                        other_at / word_bytes <= word &&
                        word < (other_at + bytes + word_bytes - 1) / word_bytes;
    if (in_this_step) { // the handler has not written the other lane's bytes yet
        copy_value(access.now.warp, access.now.step, access.now.effect, unsigned(lane), other);
        return other_at == access.address && memcmp(value, other, bytes) == 0;
    }
    const char *there = bytes_at(access);
    return there && memcmp(value, there, bytes) == 0;
}

// Returns the bytes that the lane accesses, or null if it must not access them.
const char *KernelRaces::bytes_at(const Lane &access) const {
    if (access.shared)
        return access.now.warp.block.shared.data() + access.address;
    ptx::Segment segment;
    if (!machine_.memory.find(access.address, segment))
        return nullptr;
    return segment.host + (access.address - segment.begin);
}

KernelRaces::KernelRaces(ptx::Machine &machine, Report report, Describe describe)
    : machine_(machine), report_(std::move(report)), describe_(std::move(describe)),
      roles_(machine) {
    if (machine.launch.has_independent_blocks())
        between_ = std::make_unique<BetweenBlocks>();
}

void KernelRaces::ends(const ptx::ThreadBlock &of) {
    Block &block = state_of(of);
    if (of.cluster && of.cluster->blocks().size() == 1)
        clusters_.erase(of.cluster.get());
    uint32_t ended = block.first_generation;
    for (uint64_t line : block.spread)
        if (global_[line].generation() == ended)
            global_[line].forget();
    block.spread.clear();
    active_.erase(std::remove(active_.begin(), active_.end(), ended), active_.end());
}

void KernelRaces::joins(ptx::Observer &other) {
    if (between_)
        between_->join(*static_cast<KernelRaces &>(other).between_);
}

void KernelRaces::ends_launch() {
    if (!between_ || blocks_.empty())
        return;
    for (const auto &[key, race] : between_->races())
        report(*blocks_.begin()->second, race);
}

// Reports a race between blocks that do not communicate.
void KernelRaces::report(Block &block, const BlockRace &race) {
    Entry first = as_entry(race.first), second = as_entry(race.second);
    Clash clash{first,
                second,
                race.first_lane,
                race.second_lane,
                false,
                race.address,
                race.address + race.second.size};
    clash.benign = race.benign;
    if (is_noncoherent(first) || is_noncoherent(second))
        clash.reason = Clash::Reason::Noncoherent;
    report(block, clash);
    auto places = std::minmax(first.place, second.place);
    const Hazards::Key *known = found_.find({places.first, places.second, race.benign});
    for (uint64_t i = 1; i < race.lines && known; i++)
        report_(*known, race.benign, nullptr);
}

bool KernelRaces::is_noncoherent(const Entry &entry) const {
    size_t step;
    return code_at(machine_, entry.place, step).effects[step].noncoherent;
}

void KernelRaces::starts(ptx::ThreadBlock &block) {
    std::unique_ptr<Block> &known = blocks_[&block];
    if (!known) {
        known = std::make_unique<Block>(roles_.actors, block.warps.size());
        known->shared.resize((machine_.shared_bytes + line_bytes - 1) / line_bytes);
        known->met.resize(block.warps.size());
        known->at_cluster.resize(block.warps.size());
    }
    known->clocks.begin(uint32_t(block.number));
    known->generation = ++generation_;
    known->first_generation = generation_;
    known->global.clear();
    active_.push_back(generation_);
    for (Arrivals &arrivals : known->barriers)
        arrivals.used = false;
    known->signals.clear();
    known->flags.words.clear();
    known->phases = {};
    if (roles_.any()) {
        known->groups = {};
        known->fences = ProxyFences(block.warps.size());
        known->issuers.clear();
    }
    std::fill(known->met.begin(), known->met.end(), 0);
    std::fill(known->at_cluster.begin(), known->at_cluster.end(), 0);
}

void KernelRaces::arrives(const ptx::Warp &warp, const ptx::Arrival &arrival) {
    Block &block = state_of(warp.block);
    Arrivals &arrivals = block.barriers[arrival.barrier];
    if (!arrivals.used)
        arrivals.begin(block.met.size());
    if (arrival.waits) {
        arrivals.waiting[warp.number] |= arrival.lanes;
        return;
    }
    arrivals.only_waiting = false;
    arrivals.told.learn(block.clocks.tell(warp.number, arrival.lanes));
}

void KernelRaces::completes(const ptx::ThreadBlock &of, unsigned barrier) {
    Block &block = state_of(of);
    Arrivals &arrivals = block.barriers[barrier];
    arrivals.used = false;
    bool all = arrivals.only_waiting;
    for (size_t i = 0; i < of.warps.size(); i++)
        all = all && arrivals.waiting[i] == lanes_in(of, unsigned(i));
    if (all) {
        block.clocks.meet_all();
        // Operations that are not complete stay in the shadow. So do writes that the async proxy
        // may not see.
        if (!roles_.any_async() && !block.groups.any_pending(block.clocks))
            block.generation = ++generation_;
        return;
    }
    for (unsigned i = 0; i < arrivals.waiting.size(); i++)
        if (arrivals.waiting[i])
            arrivals.told.learn(block.clocks.tell(i, arrivals.waiting[i]));
    for (unsigned i = 0; i < arrivals.waiting.size(); i++)
        learn(block, i, arrivals.waiting[i], arrivals.told);
}

void KernelRaces::learn(Block &block, unsigned warp, uint32_t lanes, const Known &known) {
    for (uint32_t left = lanes; left; left &= left - 1)
        block.clocks.learn(warp * warp_size + unsigned(__builtin_ctz(left)), known);
}

void KernelRaces::uses_cluster(const ptx::Warp &warp, const ptx::ClusterUse &use) {
    using Kind = ptx::ClusterUse::Kind;
    Block &block = state_of(warp.block);
    ClusterPhases &cluster = clusters_[warp.block.cluster.get()];
    if (use.kind == Kind::Passes)
        return learn(block, warp.number, use.lanes, cluster.over);
    if (use.kind == Kind::Waits) {
        block.at_cluster[warp.number] |= use.lanes;
        return;
    }
    if (use.releases)
        return cluster.told.learn(block.clocks.tell(warp.number, use.lanes));
    for (uint32_t left = use.lanes; left; left &= left - 1) // a fence before it may release
        cluster.told.learn(block.clocks
                               .told(warp.number * warp_size + unsigned(__builtin_ctz(left)),
                                     Clocks::of_clusters, false, false)
                               .everyone);
}

void KernelRaces::completes_cluster(const ptx::Cluster &of) {
    ClusterPhases &cluster = clusters_[&of];
    cluster.over = std::exchange(cluster.told, {});
    for (const ptx::ThreadBlock *each : of.blocks()) {
        Block &block = state_of(*each);
        for (unsigned i = 0; i < block.at_cluster.size(); i++)
            learn(block, i, std::exchange(block.at_cluster[i], 0), cluster.over);
    }
}

// All lanes learn from each other as soon as the first group of them continues, because the other
// groups have done nothing since they arrived.
void KernelRaces::meets(const ptx::Warp &warp, uint32_t members) {
    Block &block = state_of(warp.block);
    uint32_t &met = block.met[warp.number];
    members &= warp.live;
    if (met & warp.active) {
        met &= ~warp.active;
        return;
    }
    block.clocks.meet(warp.number, members, lanes_in(warp.block, warp.number));
    met = (met & ~members) | (members & ~warp.active); // lanes of other masks may be in between
}

} // namespace soft::check
