#include "check/kernel_races.h"

#include "ptx/access.h"

#include <algorithm>
#include <cstring>

namespace soft::check {

using ptx::Effect;
using ptx::Space;
using ptx::warp_size;

namespace {

constexpr size_t most_stored = 64;  // most bytes that a lane stores at once
constexpr size_t most_entries = 64; // most accesses to a word that are kept
constexpr size_t most_readers = 2;  // blocks whose reads of a word are kept

// Copies the bytes that a lane stores.
void copy_value(const ptx::Warp &warp, const ptx::Step &step, const Effect &effect, unsigned lane,
                char *to) {
    for (unsigned i = 0; i < effect.count; i++)
        memcpy(to + i * effect.item_bytes, warp.row<char>(step.rows[i]) + lane * effect.value_bytes,
               effect.item_bytes);
}

const char *mode_of(const Effect &effect) {
    return effect.kind == Effect::Kind::Read    ? "read"
           : effect.kind == Effect::Kind::Write ? "write"
                                                : "atomic";
}

uint32_t lanes_between(unsigned first, unsigned last) {
    return ~uint32_t{0} >> (31 - last) & ~uint32_t{0} << first;
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

// Returns true if the scope is a block, which does not order threads of different blocks.
bool is_block_scope(const Effect &effect) { return effect.scope == Effect::Scope::Block; }

} // namespace

void KernelRaces::run(ptx::Warp &warp, const ptx::Step &step) {
    const ptx::Code &code = *warp.frame->code;
    // Fast path: most steps do nothing that can race.
    if (code.effects[size_t(&step - code.body.data())].kind == Effect::Kind::None)
        return step.run(warp, step);
    Observer::run(warp, step);
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
    case Effect::Kind::Arrive:
        access(warp, step, effect, state_of(warp.block), lanes_of(warp, step) & effect.lanes);
        break;
    case Effect::Kind::Test:
        testing_ = lanes_of(warp, step); // the step may change its guard
        break;
    default:
        break;
    }
}

void KernelRaces::after(ptx::Warp &warp, const ptx::Step &step, const Effect &effect) {
    if (effect.kind == Effect::Kind::Test)
        access(warp, step, effect, state_of(warp.block), testing_ & warp.predicate(step.rows[0]));
}

void KernelRaces::access(ptx::Warp &warp, const ptx::Step &step, const Effect &effect, Block &block,
                         uint32_t lanes) {
    bool of_mbarrier = effect.kind == Effect::Kind::Arrive || effect.kind == Effect::Kind::Test;
    looked_at_ = 0;
    if (effect.space == Space::Local || effect.space == Space::Param ||
        effect.space == Space::Const)
        return;
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        addresses_[lane] = address_of(warp, step, effect, lane);
        // All forms of an address become one. An mbarrier is in shared memory, whatever the form.
        spaces_[lane] =
            effect.space == Space::Generic ? ptx::narrow_generic(addresses_[lane]) : effect.space;
        if (of_mbarrier)
            spaces_[lane] = Space::Shared;
    }
    if (lanes == ~uint32_t{0} && access_lines(warp, step, effect, block))
        return;
    Entry entry = entry_of(warp, step, effect);
    for (uint32_t left = lanes, done = 0; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        if (done >> lane & 1)
            continue;
        uint64_t address = addresses_[lane];
        bool shared = spaces_[lane] == Space::Shared;
        if (!shared && spaces_[lane] != Space::Global)
            continue;
        Lane one{warp, step, effect, block, lane, 1u << lane, address, shared};
        if (effect.kind == Effect::Kind::Read && !effect.strong)
            one.lanes = same_reads(one, left);
        done |= one.lanes;
        if (effect.kind == Effect::Kind::Arrive) {
            Told &told = block.words[address];
            told.add(block.clocks.told(one.thread(), true, true));
        } else if (effect.kind == Effect::Kind::Test) {
            block.clocks.see(one.thread(), block.words[address], true, true);
        } else {
            access(one, entry);
        }
        looked_at_ |= one.lanes;
    }
}

// Returns those of `lanes` that read the same bytes as this lane, at the same time of their clocks.
uint32_t KernelRaces::same_reads(const Lane &access, uint32_t lanes) const {
    uint32_t same = 0;
    uint32_t now = access.block.clocks.now(access.thread());
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        bool is_same = addresses_[lane] == access.address &&
                       spaces_[lane] == spaces_[access.lane] &&
                       access.block.clocks.now(access.thread() - access.lane + lane) == now;
        same |= uint32_t(is_same) << lane;
    }
    return same;
}

// What all lanes of an access have in common.
Entry KernelRaces::entry_of(const ptx::Warp &warp, const ptx::Step &step,
                            const Effect &effect) const {
    Entry entry;
    entry.block = uint32_t(warp.block.number);
    entry.place = place_of(warp, step);
    entry.warp = uint8_t(warp.number);
    entry.writes = effect.kind != Effect::Kind::Read;
    entry.strong = effect.strong;
    entry.only_block = is_block_scope(effect);
    entry.size = effect.item_bytes;
    return entry;
}

Line &KernelRaces::line_of(Block &block, bool shared, uint64_t line) {
    if (!shared)
        return global_[line];
    block.shared[line].begin(block.generation);
    return block.shared[line];
}

// Fast path: a whole warp accesses neighbouring items. Returns false if each lane has to be looked
// at.
bool KernelRaces::access_lines(const ptx::Warp &warp, const ptx::Step &step, const Effect &effect,
                               Block &block) {
    unsigned size = unsigned(effect.item_bytes) * effect.count;
    bool plain = effect.kind == Effect::Kind::Read || effect.kind == Effect::Kind::Write;
    if (!plain || effect.strong || (size != 4 && size != 8 && size != 16))
        return false;
    unsigned thread = warp.number * warp_size;
    Span span;
    span.entry = entry_of(warp, step, effect);
    span.entry.bytes = 0xf;
    span.entry.epoch = block.clocks.now(thread);
    uint64_t first = addresses_[0], wrong = first % size;
    for (unsigned lane = 0; lane < warp_size; lane++)
        wrong |= (addresses_[lane] ^ (first + uint64_t(lane) * size)) |
                 (block.clocks.now(thread + lane) ^ span.entry.epoch) |
                 (spaces_[lane] != spaces_[0]);
    bool shared = spaces_[0] == Space::Shared;
    uint64_t end = first + uint64_t(size) * warp_size;
    if (wrong || (!shared && spaces_[0] != Space::Global) ||
        (shared && end > machine_.shared_bytes))
        return false;
    span.words = uint8_t(size / word_bytes);
    for (uint64_t line = first / line_bytes; line * line_bytes < end; line++) {
        uint64_t begin = line * line_bytes;
        span.begin = uint8_t((std::max(first, begin) - begin) / word_bytes);
        span.end = uint8_t((std::min(end, begin + line_bytes) - begin) / word_bytes);
        span.first = int8_t(int64_t(begin - first) / int(size));
        span.entry.lanes = lanes_between(span.lane_of(span.begin), span.lane_of(span.end - 1u));
        if (!add_span(block, line_of(block, shared, line), span))
            return false;
    }
    return true;
}

// Adds an access to a line. Returns false if the line needs cells: because the access may race, or
// because there is no room for it.
bool KernelRaces::add_span(Block &block, Line &line, const Span &span) const {
    if (line.has_cells())
        return false;
    for (size_t i = 0; i < line.size(); i++)
        if ((line[i].entry.writes || span.entry.writes) && !is_behind(block, span, line[i]))
            return false;
    size_t readers = 0; // reads by other blocks
    for (size_t i = line.size(); i--;) {
        const Span &old = line[i];
        bool apart = old.entry.block != span.entry.block;
        readers += apart && !old.entry.writes;
        if (span.covers(old) && (span.entry.writes || !old.entry.writes) &&
            (span.entry.writes || is_behind(block, span, old)))
            line.drop(i);
    }
    if (!span.entry.writes && readers >= most_readers)
        return true;
    if (line.full())
        return false;
    line.add(span);
    return true;
}

// Returns whether each thread of the access `span` knows that the earlier access `old` to the same
// word is done.
bool KernelRaces::is_behind(const Block &block, const Span &span, const Span &old) const {
    if (!span.overlaps(old))
        return true;
    if (old.entry.block != span.entry.block)
        return false;
    if (old.entry.warp == span.entry.warp && span.same_lanes(old))
        return true; // the same threads
    unsigned end = std::min(span.end, old.end);
    for (unsigned word = std::max(span.begin, old.begin); word < end; word++)
        if (block.clocks.unknown(span.entry.warp * warp_size + span.lane_of(word), old.entry.block,
                                 old.entry.warp, 1u << old.lane_of(word), old.entry.epoch) >= 0)
            return false;
    return true;
}

void KernelRaces::access(const Lane &access, Entry entry) {
    const Effect &effect = access.effect;
    size_t bytes = size_t(effect.item_bytes) * effect.count;
    if (access.shared && access.address + bytes > machine_.shared_bytes)
        return; // the step ends the launch with an error
    entry.lanes = access.lanes;
    // A thread that sees a strong write after a fence knows this write, too. So the write counts as
    // made at the time of the fence.
    uint32_t released_at = access.block.clocks.released_at(access.thread());
    bool tells = entry.strong && entry.writes && released_at;
    entry.epoch = tells ? released_at : access.block.clocks.now(access.thread());
    uint64_t end = access.address + bytes;
    for (uint64_t word = access.address / word_bytes; word * word_bytes < end; word++) {
        uint64_t from = std::max(access.address, word * word_bytes) - word * word_bytes;
        uint64_t to = std::min(end - word * word_bytes, uint64_t{word_bytes});
        entry.bytes = uint8_t((1u << to) - (1u << from));
        look(access, word, entry);
    }
    synchronize(access);
}

// Compares an access with the earlier ones to the same word, and keeps it.
void KernelRaces::look(const Lane &access, uint64_t word, Entry entry) {
    Line &line = line_of(access.block, access.shared, word / line_words);
    Cell &cell = line.cell(word % line_words);
    for (size_t i = 0; i < cell.size(); i++) {
        const Entry earlier = cell[i];
        if (!(earlier.bytes & entry.bytes) || !(earlier.writes || entry.writes))
            continue;
        bool apart = earlier.block != entry.block;
        bool strong = earlier.strong && entry.strong && earlier.bytes == entry.bytes &&
                      earlier.size == entry.size &&
                      !(apart && (earlier.only_block || entry.only_block));
        if (strong)
            continue;
        auto [lane, other] = unordered(access, earlier);
        if (other >= 0) {
            Lane one = access;
            one.lane = unsigned(lane);
            found(one, word, earlier, other, entry);
            break;
        }
    }
    keep(access, cell, entry);
}

// Returns a lane of the access and one of an earlier access that nothing orders, or -1.
std::pair<int, int> KernelRaces::unordered(const Lane &access, const Entry &earlier) const {
    for (uint32_t left = access.lanes; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        int other =
            access.block.clocks.unknown(access.warp.number * warp_size + unsigned(lane),
                                        earlier.block, earlier.warp, earlier.lanes, earlier.epoch);
        if (other >= 0)
            return {lane, other};
    }
    return {-1, -1};
}

// Keeps an access, and drops those that it makes superfluous: a later access that races with one of
// them races with this one, too.
void KernelRaces::keep(const Lane &access, Cell &cell, const Entry &entry) const {
    size_t readers = 0;
    for (size_t i = cell.size(); i--;) {
        Entry &old = cell[i];
        bool apart = old.block != entry.block;
        if (!apart && old.warp == entry.warp && old.epoch == entry.epoch &&
            old.bytes == entry.bytes && old.writes == entry.writes && old.strong == entry.strong &&
            old.size == entry.size) {
            old.lanes |= entry.lanes;
            return;
        }
        readers += apart && !old.writes;
        // Keep a weak access before a strong one: a later strong access races only with the weak
        // one.
        if ((old.bytes & ~entry.bytes) || (old.writes && !entry.writes) ||
            (entry.strong && !old.strong))
            continue;
        bool replaces = entry.writes && !entry.strong;
        if (replaces || (!apart && unordered(access, old).second < 0))
            cell.drop(i);
    }
    if (cell.size() < most_entries && (entry.writes || readers < most_readers))
        cell.add(entry);
}

// Passes on what strong accesses to the same address tell each other. A weak write tells nothing,
// and deletes what was told before.
void KernelRaces::synchronize(const Lane &access) {
    const Effect &effect = access.effect;
    auto &words = access.shared ? access.block.words : words_;
    if (words.empty() && !access.block.clocks.released_at(access.thread()) && !effect.releases)
        return; // neither earlier accesses nor this one tell anything
    auto word = words.find(access.address);
    bool only_block = is_block_scope(effect);
    if (!effect.strong) {
        if (effect.kind == Effect::Kind::Write && word != words.end())
            words.erase(word);
        return;
    }
    if (effect.kind != Effect::Kind::Write && word != words.end())
        access.block.clocks.see(access.thread(), word->second, effect.acquires, only_block);
    if (effect.kind == Effect::Kind::Read)
        return;
    Told told = access.block.clocks.told(access.thread(), effect.releases, only_block);
    if (effect.kind == Effect::Kind::Write)
        words[access.address] = told;
    else if (told || word != words.end())
        words[access.address].add(told);
}

void KernelRaces::found(const Lane &access, uint64_t word, const Entry &earlier, int lane,
                        const Entry &later) {
    bool benign = earlier.writes && !later.strong && access.effect.kind == Effect::Kind::Write &&
                  stores_the_same(access, earlier, word, lane);
    auto [known, is_new] = found_.try_emplace(
        {std::min(earlier.place, later.place), std::max(earlier.place, later.place), benign});
    Hazards::Key &key = known->second;
    if (!is_new)
        return report_(key, benign, nullptr);
    HazardAccess first = described(earlier, unsigned(lane));
    HazardAccess second = described(later, access.lane);
    uintptr_t begin = 0;
    std::string memory = access.shared ? shared_variable(machine_, access.address, begin)
                                       : describe_(access.address, begin);
    auto lines = std::minmax(first.ptx_line, second.ptx_line);
    key = {machine_.launch.kernel->name, "race", memory, lines.first, lines.second};
    report_(key, benign, [&] {
        Hazard hazard;
        hazard.kind = "race";
        hazard.kernel = machine_.launch.kernel->name;
        hazard.memory = memory;
        hazard.address = access.shared ? 0 : begin;
        hazard.start = access.address - begin;
        hazard.stop = hazard.start + size_t(access.effect.item_bytes) * access.effect.count;
        hazard.first = first;
        hazard.second = second;
        hazard.benign = benign;
        hazard.remedy = remedy(earlier, later, first, second, access.shared);
        return hazard;
    });
}

// Returns whether a lane stores the bytes that the memory contains already.
bool KernelRaces::stores_the_same(const Lane &access, const Entry &earlier, uint64_t word,
                                  int lane) const {
    char value[most_stored], other[most_stored];
    copy_value(access.warp, access.step, access.effect, access.lane, value);
    size_t bytes = size_t(access.effect.item_bytes) * access.effect.count;
    bool in_this_step = earlier.warp == access.warp.number && looked_at_ >> lane & 1 &&
                        (spaces_[lane] == Space::Shared) == access.shared &&
                        earlier.block == access.warp.block.number &&
                        addresses_[lane] / word_bytes <= word &&
                        word < (addresses_[lane] + bytes + word_bytes - 1) / word_bytes;
    if (in_this_step) { // the other lane's bytes are not in memory yet
        copy_value(access.warp, access.step, access.effect, unsigned(lane), other);
        return addresses_[lane] == access.address && memcmp(value, other, bytes) == 0;
    }
    const char *there = bytes_at(access);
    return there && memcmp(value, there, bytes) == 0;
}

// Returns the bytes that the lane accesses, or null if it must not access them.
const char *KernelRaces::bytes_at(const Lane &access) const {
    if (access.shared)
        return access.warp.block.shared.data() + access.address;
    ptx::Segment segment;
    if (!machine_.memory.find(access.address, segment))
        return nullptr;
    return segment.host + (access.address - segment.begin);
}

HazardAccess KernelRaces::described(const Entry &entry, unsigned lane) const {
    size_t step;
    const ptx::Code &code = code_at(machine_, entry.place, step);
    return access_at(machine_, entry.place, mode_of(code.effects[step]), entry.block,
                     entry.warp * warp_size + lane);
}

void KernelRaces::starts(ptx::ThreadBlock &block) {
    std::unique_ptr<Block> &known = blocks_[&block];
    if (!known) {
        known = std::make_unique<Block>(machine_.threads);
        known->shared.resize((machine_.shared_bytes + line_bytes - 1) / line_bytes);
        known->met.resize(block.warps.size());
    }
    known->clocks.begin(uint32_t(block.number));
    known->generation = ++generation_;
    known->barriers.clear();
    known->words.clear();
    std::fill(known->met.begin(), known->met.end(), 0);
}

void KernelRaces::arrives(const ptx::Warp &warp, const ptx::Arrival &arrival) {
    Block &block = state_of(warp.block);
    Arrivals &arrivals = block.barriers[arrival.barrier];
    arrivals.waiting.resize(block.met.size());
    if (arrival.waits) {
        arrivals.waiting[warp.number] |= arrival.lanes;
        return;
    }
    arrivals.only_waiting = false;
    arrivals.told.learn(block.clocks.tell(warp.number, arrival.lanes));
}

void KernelRaces::completes(const ptx::ThreadBlock &of, unsigned barrier) {
    Block &block = state_of(of);
    Arrivals arrivals = std::move(block.barriers[barrier]);
    block.barriers.erase(barrier);
    arrivals.waiting.resize(block.met.size());
    bool all = arrivals.only_waiting;
    for (size_t i = 0; i < of.warps.size(); i++)
        all = all && !(of.warps[i]->live & ~arrivals.waiting[i]);
    if (all) {
        block.clocks.meet_all();
        block.generation = ++generation_;
        return;
    }
    for (unsigned i = 0; i < arrivals.waiting.size(); i++)
        if (arrivals.waiting[i])
            arrivals.told.learn(block.clocks.tell(i, arrivals.waiting[i]));
    for (unsigned i = 0; i < arrivals.waiting.size(); i++)
        for (uint32_t left = arrivals.waiting[i]; left; left &= left - 1)
            block.clocks.learn(i * warp_size + unsigned(__builtin_ctz(left)), arrivals.told);
}

// All lanes learn from each other when the first group of them continues: the other groups have
// done nothing since they arrived.
void KernelRaces::meets(const ptx::Warp &warp, uint32_t members) {
    Block &block = state_of(warp.block);
    uint32_t &met = block.met[warp.number];
    members &= warp.live;
    if (met & warp.active) {
        met &= ~warp.active;
        return;
    }
    block.clocks.meet(warp.number, members, warp.live);
    met = members & ~warp.active;
}

} // namespace soft::check
