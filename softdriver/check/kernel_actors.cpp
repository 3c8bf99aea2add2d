#include "check/kernel_races.h"

#include "ptx/access.h"
#include "ptx/matrix.h"
#include "ptx/mbarrier.h"
#include "ptx/wgmma.h"

#include <algorithm>
#include <cstring>

// The part of checks=race about accesses that are not those of single threads: copies by hardware
// and products by wgmma, which go on after their instruction, ldmatrix, stmatrix and wmma, which a
// warp does together, and textures.

namespace soft::check {

using ptx::Effect;
using ptx::Space;
using ptx::warp_size;

namespace {

bool is_wmma(const Effect &effect) {
    return effect.kind == Effect::Kind::Other && effect.actor == Effect::Actor::Warp;
}

// Returns the part of an access that is in one line. All lanes of the entry access the same bytes.
Span span_of(const Entry &entry, uint64_t begin, uint64_t end, uint64_t line) {
    Span span;
    span.block = entry.block;
    span.epoch = entry.epoch;
    span.lanes = entry.lanes;
    span.place = entry.place;
    span.warp = entry.warp;
    span.writes = entry.writes;
    uint64_t first = line * line_bytes;
    span.begin = uint8_t(std::max(begin, first) - first);
    span.end = uint8_t(std::min(end, first + line_bytes) - first);
    span.size = uint8_t(span.end - span.begin);
    return span;
}

} // namespace

// ---- what a step accesses ----

void KernelRaces::collect(ptx::Warp &warp, const ptx::Step &step) {
    collects_ = true;
    uses_.clear();
    running_ = lanes_of(warp, step);
}

void KernelRaces::uses(const ptx::Warp &, unsigned lane, Space space, uint64_t address,
                       size_t bytes, ptx::Use use) {
    bool shared = space == Space::Shared;
    if (!collects_ || (!shared && space != Space::Global) || !bytes)
        return;
    bool updates = use == ptx::Use::Atomic;
    if (!(shared && updates)) // that is the mbarrier of a copy
        uses_.push_back({lane, shared, ptx::writes(use), updates, address, address + bytes});
}

void KernelRaces::finish(ptx::Warp &warp, const ptx::Step &step, const Effect &effect) {
    collects_ = false;
    if (uses_.empty())
        return;
    switch (effect.actor) {
    case Effect::Actor::Copy:
        return finish_copies(warp, step, effect);
    case Effect::Actor::Warp:
        return finish_together(warp, step);
    case Effect::Actor::Group:
        return finish_products(warp, step);
    case Effect::Actor::Bulk:
        merge_uses();
        while (!uses_.empty())
            finish_bulk(warp, step, effect, uses_.front().lane, nullptr);
        return;
    default:
        return finish_alone(warp, step, effect);
    }
}

KernelRaces::Accessor KernelRaces::accessor(const ptx::Warp &warp, const ptx::Step &step,
                                            unsigned lane, unsigned actor, uint32_t time) {
    Entry entry;
    entry.block = uint32_t(warp.block.number);
    entry.place = place_of(warp, step);
    entry.warp = uint8_t(actor / warp_size);
    entry.lanes = uint32_t{1} << actor % warp_size;
    entry.epoch = time;
    return {state_of(warp.block), warp, lane, entry};
}

// Joins neighbouring uses of the same kind by the same lane.
void KernelRaces::merge_uses() {
    auto kind = [](const Use &use) {
        return std::make_tuple(use.lane, use.shared, use.writes, use.updates);
    };
    std::sort(uses_.begin(), uses_.end(), [&](const Use &a, const Use &b) {
        return std::make_pair(kind(a), a.begin) < std::make_pair(kind(b), b.begin);
    });
    size_t made = 0;
    for (const Use &use : uses_)
        if (made && kind(uses_[made - 1]) == kind(use) &&
            use.begin < uses_[made - 1].end + !use.writes + 1 &&
            (!use.writes || use.begin == uses_[made - 1].end))
            uses_[made - 1].end = std::max(uses_[made - 1].end, use.end);
        else
            uses_[made++] = use;
    uses_.resize(made);
}

// cp.async: each lane copies to shared memory, and its thread waits for the copies in groups.
void KernelRaces::finish_copies(const ptx::Warp &warp, const ptx::Step &step,
                                const Effect &effect) {
    Block &block = state_of(warp.block);
    uint32_t times[warp_size] = {};
    for (uint32_t left = running_; left; left &= left - 1) {
        unsigned lane = first_of(left);
        times[lane] = block.groups.begin(roles_.copies(warp.number * warp_size + lane));
    }
    for (bool writes : {false, true}) {
        std::vector<Use> all;
        for (const Use &use : uses_)
            if (use.writes == writes)
                all.push_back(use);
        bool same_time =
            std::all_of(times, times + warp_size, [&](uint32_t time) { return time == times[0]; });
        Accessor row = accessor(warp, step, 0, roles_.copies(warp.number * warp_size), times[0]);
        row.entry.writes = writes;
        if (same_time && add_rows(row, all))
            continue;
        for (const Use &use : all) {
            Accessor by =
                accessor(warp, step, use.lane, roles_.copies(warp.number * warp_size + use.lane),
                         times[use.lane]);
            by.entry.writes = writes;
            by.entry.size = by.entry.strong ? effect.item_bytes : 0;
            access(by, use);
        }
    }
}

// Fast path: all lanes of a warp access neighbouring items. Returns false if each use has to be
// looked at.
bool KernelRaces::add_rows(Accessor &by, const std::vector<Use> &uses) {
    if (uses.size() != warp_size)
        return false;
    uint64_t first = uses[0].begin, size = uses[0].end - first;
    if (size > line_bytes || size & (size - 1) || first % size)
        return false;
    for (unsigned lane = 0; lane < warp_size; lane++)
        if (uses[lane].lane != lane || uses[lane].begin != first + lane * size ||
            uses[lane].end != uses[lane].begin + size)
            return false;
    uint64_t end = first + size * warp_size;
    for (uint64_t line = first / line_bytes; line * line_bytes < end; line++) {
        Span span = span_of(by.entry, first, end, line);
        unsigned lane = unsigned((line * line_bytes + span.begin - first) / size);
        unsigned count = span.size / unsigned(size);
        span.lanes = uint32_t(((uint64_t{1} << count) - 1) << lane);
        span.size = uint8_t(size);
        span.stride = uint8_t(count > 1 ? size : 0);
        if (!add(by, line_of(by.block, uses[0].shared, line), span))
            return false;
    }
    return true;
}

// ldmatrix, stmatrix and wmma: no lane can know which other lane accesses which bytes.
void KernelRaces::finish_together(const ptx::Warp &warp, const ptx::Step &step) {
    for (Use &use : uses_)
        use.lane = 0;
    merge_uses();
    Block &block = state_of(warp.block);
    Clocks::Times known = block.clocks.known_to_all(warp.number, running_);
    const ptx::Code &code = *warp.frame->code;
    uint32_t time = block.clocks.level(warp.number, running_); // they access it at one time
    for (const Use &use : uses_) {
        Accessor by = accessor(warp, step, first_of(running_), warp.number * warp_size, time);
        by.entry.lanes = running_;
        by.entry.writes = use.writes;
        by.known = known;
        if (is_wmma(effect_of(warp, step)))
            by.fragment = code.fragments[step.place].get();
        access(by, use);
    }
}

static_assert(product_warps == ptx::warps_of_group);

// wgmma: all warps of the warpgroup read the matrices, until one waits for the group of products.
void KernelRaces::finish_products(const ptx::Warp &warp, const ptx::Step &step) {
    merge_uses();
    Block &block = state_of(warp.block);
    unsigned first = warp.number / ptx::warps_of_group * ptx::warps_of_group;
    Clocks::Times known, fenced;
    uint32_t times[ptx::warps_of_group];
    for (unsigned i = 0; i < ptx::warps_of_group; i++) {
        times[i] = block.groups.begin(roles_.products(first + i));
        Clocks::Times one = block.clocks.known_to_any(first + i, warp.block.warps[first + i]->live);
        Clocks::Times behind = block.fences.fenced(one, uint32_t(warp.block.number), true);
        for (size_t j = 0; i && j < known.size(); j++) {
            known[j] = std::min(known[j], one[j]);
            fenced[j] = std::min(fenced[j], behind[j]);
        }
        known = i ? known : one;
        fenced = i ? fenced : behind;
    }
    bool same = std::all_of(times, times + ptx::warps_of_group,
                            [&](uint32_t time) { return time == times[0]; });
    for (unsigned i = 0; i < (same ? 1 : ptx::warps_of_group); i++) {
        Accessor by = accessor(warp, step, 0, roles_.products(first + i), times[i]);
        if (same)
            by.entry.lanes = ((1u << ptx::warps_of_group) - 1) << first % warp_size;
        by.known = known;
        by.fenced = fenced;
        for (const Use &use : uses_)
            access(by, use);
    }
}

// Takes the uses of a lane. Other lanes may have equal uses: these are taken, too. Returns these
// lanes.
uint32_t KernelRaces::take_equal_uses(unsigned lane, std::vector<Use> &taken) {
    std::vector<Use> of[warp_size];
    for (const Use &use : uses_)
        of[use.lane].push_back(use);
    taken = of[lane];
    auto is_equal = [](const Use &a, const Use &b) {
        return a.shared == b.shared && a.writes == b.writes && a.updates == b.updates &&
               a.begin == b.begin && a.end == b.end;
    };
    uint32_t lanes = 0;
    for (unsigned other = 0; other < warp_size; other++)
        if (std::equal(taken.begin(), taken.end(), of[other].begin(), of[other].end(), is_equal))
            lanes |= 1u << other;
    uses_.erase(std::remove_if(uses_.begin(), uses_.end(),
                               [&](const Use &use) { return lanes >> use.lane & 1; }),
                uses_.end());
    return lanes;
}

// A bulk copy of a lane. It belongs to the phase of an mbarrier or, if this is null, to a group. If
// other lanes make the same copy, the copies store the same bytes, and GPUs make only one of them.
void KernelRaces::finish_bulk(const ptx::Warp &warp, const ptx::Step &step, const Effect &effect,
                              unsigned lane, Phases::Phase *phase) {
    Block &block = state_of(warp.block);
    unsigned thread = warp.number * warp_size + lane;
    std::vector<Use> own;
    uint32_t lanes = take_equal_uses(lane, own);
    if (phase && phase->actor == roles_.actors.count())
        return; // too many mbarriers
    if (phase) {
        phase->last_copy = phase->time;
        block.issuers[{phase->actor, place_of(warp, step)}] = thread;
    }
    Clocks::Times known = block.clocks.known_to_any(warp.number, uint32_t{1} << lane);
    Clocks::Times fenced[2] = {block.fences.fenced(known, uint32_t(warp.block.number), false),
                               block.fences.fenced(known, uint32_t(warp.block.number), true)};
    uint32_t time = phase ? phase->time : 0;
    for (uint32_t left = phase ? 0 : lanes; left; left &= left - 1) {
        unsigned one = warp.number * warp_size + first_of(left);
        time = block.groups.begin(roles_.bulk_reads(one));
        block.groups.begin_with(roles_.bulk_writes(one), time);
    }
    for (const Use &use : own) {
        unsigned actor = phase        ? phase->actor
                         : use.writes ? roles_.bulk_writes(thread)
                                      : roles_.bulk_reads(thread);
        Accessor by = accessor(warp, step, lane, actor, time);
        if (!phase)
            by.entry.lanes = lanes;
        by.entry.writes = use.writes;
        by.entry.strong = use.updates;
        by.entry.size = by.entry.strong ? effect.item_bytes : 0;
        by.known = known;
        by.fenced = fenced[use.shared];
        access(by, use);
    }
}

// Textures and surfaces.
void KernelRaces::finish_alone(const ptx::Warp &warp, const ptx::Step &step, const Effect &effect) {
    merge_uses();
    Block &block = state_of(warp.block);
    for (const Use &use : uses_) {
        unsigned thread = warp.number * warp_size + use.lane;
        Accessor by = accessor(warp, step, use.lane, thread, block.clocks.now(thread));
        by.entry.writes = use.writes;
        by.entry.strong = use.updates;
        by.entry.size = by.entry.strong ? effect.item_bytes : 0;
        by.noncoherent = effect.noncoherent && !use.writes;
        access(by, use);
    }
}

// ---- waits and fences ----

void KernelRaces::fence_proxies(const ptx::Warp &warp, const Effect &effect, uint32_t lanes) {
    if (!lanes)
        return;
    Block &block = state_of(warp.block);
    block.fences.add(block.clocks, warp.number, lanes, effect.space);
    if (effect.space != Space::Shared)
        fenced_blocks_.insert(uint32_t(warp.block.number));
}

void KernelRaces::groups(const ptx::Warp &warp, const Effect &effect, uint32_t lanes) {
    Block &block = state_of(warp.block);
    bool waits = effect.kind == Effect::Kind::Await;
    auto wait = [&](unsigned actor, unsigned counted) {
        block.clocks.finish(actor, effect.copies ? block.groups.close(counted)
                                                 : block.groups.waited(counted, effect.count));
    };
    if (effect.actor == Effect::Actor::Group && lanes) {
        unsigned actor = roles_.products(warp.number);
        return waits ? wait(actor, actor) : block.groups.commit(actor);
    }
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned thread = warp.number * warp_size + first_of(left);
        bool bulk = effect.actor == Effect::Actor::Bulk;
        unsigned actor = bulk ? roles_.bulk_reads(thread) : roles_.copies(thread);
        if (!waits) {
            block.groups.commit(actor);
            continue;
        }
        wait(actor, actor);
        if (bulk && !effect.only_reads)
            wait(roles_.bulk_writes(thread), actor);
    }
}

void KernelRaces::uses_mbarrier(const ptx::Warp &warp, const ptx::MbarrierUse &use) {
    using Kind = ptx::MbarrierUse::Kind;
    Block &block = state_of(warp.block);
    if (use.kind == Kind::Initializes)
        return block.phases.forget(use.address);
    if (use.kind != Kind::Uses && use.kind != Kind::Copies)
        return;
    uint64_t word;
    std::memcpy(&word, warp.block.shared.data() + use.address, sizeof word);
    Phases::Phase &phase =
        block.phases.look(use.address, ptx::Mbarrier(word).odd_phase, roles_, block.clocks);
    const Effect &effect = effect_of(warp, use.step);
    unsigned thread = warp.number * warp_size + use.lane;
    if (use.kind == Kind::Copies) {
        merge_uses();
        return finish_bulk(warp, use.step, effect, use.lane, &phase);
    }
    if (effect.kind != Effect::Kind::Arrive)
        return;
    Told told;
    if (effect.copies) { // such an arrival does not pass on what the thread itself has done
        unsigned actor = roles_.copies(thread);
        told.of = block.clocks.block();
        told.block = block.clocks.only(actor, block.groups.close(actor));
    } else
        told = block.clocks.told(thread, Clocks::of_mbarriers, true, true);
    phase.arriving.add(told);
}

// The lanes have seen that the phases of mbarriers are over.
void KernelRaces::see_phases(const ptx::Warp &warp, const ptx::Step &step, const Effect &effect,
                             uint32_t lanes) {
    Block &block = state_of(warp.block);
    for (uint32_t left = lanes; left; left &= left - 1) {
        uint64_t address = address_of(warp, step, effect, first_of(left));
        ptx::narrow_generic(address);
        if (const Phases::Phase *phase = block.phases.find(address))
            block.clocks.see(warp.number * warp_size + first_of(left), Clocks::of_mbarriers,
                             phase->over, true, true);
    }
}

// ---- comparing accesses ----

// Returns a lane of an earlier access that the accessor does not know to be complete, or -1.
int KernelRaces::unknown(const Accessor &by, unsigned lane, const Entry &earlier,
                         uint32_t lanes) const {
    if (by.known.empty() || earlier.block != by.entry.block)
        return by.block.clocks.unknown(by.warp.number * warp_size + lane, earlier.block,
                                       earlier.warp, lanes, earlier.epoch);
    for (; lanes; lanes &= lanes - 1)
        if (by.known[actor_of(earlier, first_of(lanes))] < earlier.epoch)
            return is_same_fragment(by, earlier) ? -1 : int(first_of(lanes));
    return -1;
}

// Returns a lane of an earlier write in the generic proxy, if no proxy fence is between this write
// and the accessor, or -1. Copies by cp.async need no fence: CUTLASS and Triton rely on this.
int KernelRaces::unfenced(const Accessor &by, const Entry &earlier, uint32_t lanes) const {
    if (by.fenced.empty() || !earlier.writes || actor_of(earlier, 0) >= roles_.actors.stride)
        return -1;
    bool apart = earlier.block != by.entry.block;
    if (apart && fenced_blocks_.count(earlier.block))
        return -1;
    for (; lanes; lanes &= lanes - 1) {
        unsigned actor = actor_of(earlier, first_of(lanes));
        if (apart ? !by.block.fences.fenced(by.known, earlier.block, actor, earlier.epoch)
                  : by.fenced[actor] < earlier.epoch)
            return int(first_of(lanes));
    }
    return -1;
}

// Returns whether both accesses are by wmma, of the same warp and to fragments of the same form. A
// lane then accesses the same items in both.
bool KernelRaces::is_same_fragment(const Accessor &by, const Entry &earlier) const {
    if (!by.fragment || earlier.warp != by.entry.warp)
        return false;
    size_t step;
    const ptx::Code &code = code_at(machine_, earlier.place, step);
    if (!is_wmma(code.effects[step]))
        return false;
    const ptx::Fragment &a = *by.fragment, &b = *code.fragments[code.body[step].place];
    return a.item == b.item && a.rows == b.rows && a.columns == b.columns &&
           a.by_columns == b.by_columns && a.registers.size() == b.registers.size();
}

// Returns whether an access may race with an earlier one. One of them writes.
bool KernelRaces::may_race(const Accessor &by, const Span &span, const Span &old) const {
    if (!span.overlaps(old))
        return false;
    bool races = false;
    span.each([&](uint32_t lanes, unsigned at) {
        Entry earlier = as_entry(old);
        earlier.lanes = old.lanes_at(at, at + span.size);
        if (!earlier.lanes)
            return;
        races =
            races || (by.noncoherent && old.writes) || unfenced(by, earlier, earlier.lanes) >= 0;
        uint32_t left = by.known.empty() ? lanes : uint32_t{1} << by.lane;
        for (; left && !races; left &= left - 1)
            races = unknown(by, first_of(left), earlier, earlier.lanes) >= 0;
    });
    return races;
}

// Adds an access to a line. Returns false if the line needs cells: because the access may race, or
// because there is no room for it.
bool KernelRaces::add(const Accessor &by, Line &line, const Span &span) const {
    if (line.has_cells())
        return false;
    const Span *spans = line.spans();
    for (unsigned i = 0, end = span.writes ? line.size() : line.writes(); i < end; i++)
        if (may_race(by, span, spans[i]))
            return false;
    size_t readers = 0;
    for (unsigned i = line.size(); i-- > (span.writes ? 0 : line.writes());) {
        const Span old = spans[i];
        readers += old.block != span.block && old.covers(span);
        bool is_same = old.block == span.block && old.warp == span.warp && old.epoch == span.epoch;
        if (span.covers(old) && (span.writes || (is_same && span.has_pattern(old))))
            line.drop(i);
    }
    if (!span.writes && readers >= most_readers)
        return true;
    return line.add(span);
}

// Compares an access to some bytes with the earlier ones, and keeps it.
void KernelRaces::access(Accessor &by, const Use &use) {
    if (use.shared && use.end > machine_.shared_bytes)
        return; // the step ends the launch with an error
    for (uint64_t line = use.begin / line_bytes; line * line_bytes < use.end; line++) {
        if (!by.entry.strong && add(by, line_of(by.block, use.shared, line),
                                    span_of(by.entry, use.begin, use.end, line)))
            continue;
        uint64_t last = std::min((use.end + word_bytes - 1) / word_bytes, (line + 1) * line_words);
        for (uint64_t word = std::max(use.begin / word_bytes, line * line_words); word < last;
             word++)
            look(by, use, word);
    }
}

void KernelRaces::look(Accessor &by, const Use &use, uint64_t word) {
    Cell &cell = line_of(by.block, use.shared, word / line_words).cell(word % line_words);
    uint64_t begin = std::max(use.begin, word * word_bytes);
    uint64_t end = std::min(use.end, (word + 1) * word_bytes);
    by.entry.bytes = bytes_of_word(begin, end);
    by.entry.number = by.entry.first = by.entry.writes ? ++writes_ : 0;
    for (size_t i = 0; i < cell.size(); i++) {
        const Entry earlier = cell[i];
        if (!(earlier.bytes & by.entry.bytes) || !(earlier.writes || by.entry.writes) ||
            by.told.count(earlier.place))
            continue;
        bool strong =
            earlier.is_morally_strong(by.entry) && is_async(earlier) == is_async(by.entry);
        if (strong)
            continue;
        Clash clash{earlier, by.entry, 0, first_of(by.entry.lanes), use.shared, begin, end};
        int lane = unknown(by, by.lane, earlier, earlier.lanes);
        if (lane < 0 && by.noncoherent && earlier.writes) {
            lane = int(first_of(earlier.lanes));
            clash.reason = Clash::Reason::Noncoherent;
        }
        if (lane < 0) {
            lane = unfenced(by, earlier, earlier.lanes);
            clash.reason = Clash::Reason::Proxies;
        }
        if (lane < 0)
            continue;
        clash.earlier_lane = unsigned(lane);
        uint32_t others = by.entry.lanes & ~(uint32_t{1} << clash.later_lane);
        bool is_same =
            actor_of(earlier, clash.earlier_lane) == actor_of(by.entry, clash.later_lane);
        if (is_same && earlier.block == by.entry.block && others)
            clash.later_lane = first_of(others); // a race is between two threads
        report(by.block, clash);
        by.told.insert(earlier.place);
    }
    keep(by, cell);
}

// Keeps an access, and drops those that it makes superfluous. The function of this name in
// kernel_races.cpp does this for accesses of threads.
void KernelRaces::keep(const Accessor &by, Cell &cell) const {
    const Entry &entry = by.entry;
    if (Entry *same = cell.find_like(entry)) {
        same->merge(entry);
        return;
    }
    size_t readers = 0;
    for (size_t i = cell.size(); i--;) {
        const Entry &old = cell[i];
        bool apart = old.block != entry.block;
        readers += apart && !old.writes;
        if ((old.bytes & ~entry.bytes) || (old.writes && !entry.writes) ||
            (entry.strong && !old.strong))
            continue;
        bool replaces = entry.writes && !entry.strong;
        if (replaces || (!apart && unknown(by, by.lane, old, old.lanes) < 0))
            cell.drop(i);
    }
    if (cell.size() < most_entries && (entry.writes || readers < most_readers))
        cell.add(entry);
}

// Reports lanes that read, by ld.global.nc, what the launch has written.
void KernelRaces::find_unseen_writes(const Now &now, uint32_t lanes) {
    uint64_t unwritten = ~uint64_t{0}; // the number of a line that nobody has written
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned lane = first_of(left), thread = now.warp.number * warp_size + lane;
        uint64_t begin = addresses_[lane], end = begin + now.bytes;
        if (begin / line_bytes == unwritten || addresses_.space(lane) != Space::Global)
            continue;
        Line &line = line_of(now.block, false, begin / line_bytes);
        if (!line.has_cells() && !line.writes()) {
            unwritten = begin / line_bytes;
            continue;
        }
        bool any = line.has_cells();
        for (unsigned i = 0; i < line.writes(); i++)
            any |= line.spans()[i].lanes_at(begin % line_bytes,
                                            unsigned(begin % line_bytes + now.bytes)) != 0;
        if (!any)
            continue;
        Accessor by = accessor(now.warp, now.step, lane, thread, now.block.clocks.now(thread));
        for (uint64_t at = begin, next; at < end; at = next) {
            next = std::min(end, (at / word_bytes + 1) * word_bytes);
            Cell &cell = line.cell(at / word_bytes % line_words);
            for (size_t i = 0; i < cell.size() && by.told.empty(); i++) {
                const Entry earlier = cell[i];
                if (!earlier.writes || !(earlier.bytes & bytes_of_word(at, next)))
                    continue;
                Clash clash{earlier, by.entry, first_of(earlier.lanes), lane, false, begin, end};
                clash.reason = Clash::Reason::Noncoherent;
                report(now.block, clash);
                by.told.insert(earlier.place);
            }
        }
    }
}

// ---- texts ----

// Returns the thread that has started an access. It is 0 if it is no longer known.
unsigned KernelRaces::thread_of(const Block &block, const Entry &entry, unsigned lane) const {
    unsigned actor = actor_of(entry, lane);
    if (roles_.role(actor) != Roles::Role::Mbarrier)
        return roles_.owner(actor);
    auto found = block.issuers.find({actor, entry.place});
    return found == block.issuers.end() || entry.block != block.clocks.block() ? 0 : found->second;
}

HazardAccess KernelRaces::described(const Block &block, const Entry &entry, unsigned lane) const {
    size_t step;
    const Effect &effect = code_at(machine_, entry.place, step).effects[step];
    bool updates =
        effect.kind == Effect::Kind::Update || (effect.kind == Effect::Kind::Other && entry.strong);
    std::string mode = !entry.writes ? "read" : updates ? "atomic" : "write";
    if (actor_of(entry, lane) >= roles_.actors.stride)
        mode = "asynchronous " + mode;
    return access_at(machine_, entry.place, mode, entry.block, thread_of(block, entry, lane));
}

bool KernelRaces::is_of_threads(const Clash &clash) const {
    return actor_of(clash.earlier, clash.earlier_lane) < roles_.actors.stride &&
           actor_of(clash.later, clash.later_lane) < roles_.actors.stride;
}

// Sets the advice for a race if one of its accesses is not an ordinary access of a thread.
// Otherwise returns false.
bool KernelRaces::advise_on_actors(const Block &block, const Clash &clash, Hazard &hazard) const {
    using Role = Roles::Role;
    const std::string before = " before " + hazard.second.place;
    if (clash.reason == Clash::Reason::Noncoherent) {
        hazard.reason = "Reads by ld.global.nc (__ldg, const __restrict__), textures and surfaces "
                        "may miss what the same launch has written";
        hazard.remedy = "use an ordinary read, or launch the two as two kernels";
        return true;
    }
    if (clash.reason == Clash::Reason::Proxies) {
        hazard.reason = "The write is in the generic proxy, and the other access in the async "
                        "proxy, which may miss it";
        hazard.remedy = "add fence.proxy.async (cuda::ptx::fence_proxy_async)" + before;
        return true;
    }
    unsigned actor = actor_of(clash.earlier, clash.earlier_lane);
    Role role = roles_.role(actor), later = roles_.role(actor_of(clash.later, clash.later_lane));
    if ((role == Role::Thread && later == Role::Thread) || clash.earlier.block != clash.later.block)
        return false;
    const std::string between = " between " + hazard.first.place + " and " + hazard.second.place;
    if (role == Role::Thread) {
        bool fence = clash.earlier.writes && later != Role::Copies;
        hazard.remedy = (fence ? "add fence.proxy.async (cuda::ptx::fence_proxy_async) and "
                                 "__syncthreads()"
                               : "add __syncthreads()") +
                        between;
        return true;
    }
    bool waited = role != Role::Mbarrier && block.clocks.finished(actor) >= clash.earlier.epoch;
    if (waited) {
        hazard.remedy =
            "add __syncthreads() between the wait for the copy and " + hazard.second.place;
        if (role == Role::Products)
            hazard.remedy =
                "add __syncthreads() between wgmma.wait_group and " + hazard.second.place;
        return true;
    }
    switch (role) {
    case Role::Copies:
        hazard.remedy = "wait for the copy: cp.async.wait_group (cuda::pipeline wait, "
                        "__pipeline_wait_prior)";
        break;
    case Role::BulkReads:
        hazard.remedy = "wait for the copy: cp.async.bulk.wait_group.read "
                        "(cuda::ptx::cp_async_bulk_wait_group_read)";
        break;
    case Role::BulkWrites:
        hazard.remedy = "wait for the copy: cp.async.bulk.wait_group "
                        "(cuda::ptx::cp_async_bulk_wait_group)";
        break;
    case Role::Products:
        hazard.remedy = "wait for the product: wgmma.wait_group";
        break;
    default:
        hazard.remedy = "wait for the copy: mbarrier.try_wait (cuda::barrier wait) for the phase "
                        "of its mbarrier";
    }
    bool same = thread_of(block, clash.earlier, clash.earlier_lane) ==
                thread_of(block, clash.later, clash.later_lane);
    if (!same && role != Role::Mbarrier)
        hazard.remedy += " and __syncthreads(),";
    hazard.remedy += before;
    return true;
}

} // namespace soft::check
