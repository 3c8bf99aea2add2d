#include "check/kernel_races.h"

#include "ptx/access.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>

namespace soft::check {

using ptx::Effect;
using ptx::Space;
using ptx::warp_size;

namespace {

constexpr unsigned step_bits = 20;  // of Entry::place: the step; the rest is the function
constexpr size_t most_stored = 64;  // bytes of an access of a lane
constexpr size_t most_entries = 64; // of a word: accesses that nothing orders
constexpr size_t most_readers = 2;  // blocks whose reads of a word are kept

uint32_t active_lanes(const ptx::Warp &warp, const ptx::Step &step) {
    if (!step.guarded)
        return warp.active;
    uint32_t holds = warp.predicate(step.guard);
    return warp.active & (step.guard_negated ? ~holds : holds);
}

uint64_t address_of(const ptx::Warp &warp, const ptx::Step &step, const Effect &effect,
                    unsigned lane) {
    uint64_t base = effect.address_bytes == 4 ? warp.row<uint32_t>(step.rows[9])[lane]
                                              : warp.row<uint64_t>(step.rows[9])[lane];
    return base + uint64_t(step.offset);
}

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

// Returns the name of a variable as CUDA C has it: "tile" for _ZZ8exchangeE4tile.
std::string source_name(const std::string &name) {
    int status = 0;
    char *found = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
    std::string source = found ? found : name;
    std::free(found);
    size_t scope = source.rfind("::");
    return scope == std::string::npos ? source : source.substr(scope + 2);
}

// What to do about a race.
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

// A scope that is too small for two threads of different blocks.
bool is_block_scope(const Effect &effect) { return effect.scope == Effect::Scope::Block; }

} // namespace

void KernelRaces::run(ptx::Warp &warp, const ptx::Step &step) {
    const ptx::Code &code = *warp.frame->code;
    const Effect &effect = code.effects[size_t(&step - code.body.data())];
    if (effect.kind == Effect::Kind::None)
        return step.run(warp, step);
    uint32_t lanes = active_lanes(warp, step) & effect.lanes;
    Block &block = state_of(warp.block);
    switch (effect.kind) {
    case Effect::Kind::Fence:
        for (uint32_t left = lanes; left; left &= left - 1) {
            unsigned thread = warp.number * warp_size + unsigned(__builtin_ctz(left));
            if (effect.acquires)
                block.clocks.acquire(thread, is_block_scope(effect));
            if (effect.releases)
                block.clocks.release(thread, is_block_scope(effect));
        }
        break;
    case Effect::Kind::Test:
        step.run(warp, step);
        lanes &= warp.predicate(step.rows[0]);
        break;
    default:
        break;
    }
    if (effect.kind != Effect::Kind::Fence)
        access(warp, step, effect, lanes);
    if (effect.kind != Effect::Kind::Test)
        step.run(warp, step);
}

void KernelRaces::access(ptx::Warp &warp, const ptx::Step &step, const Effect &effect,
                         uint32_t lanes) {
    bool of_mbarrier = effect.kind == Effect::Kind::Arrive || effect.kind == Effect::Kind::Test;
    Block &block = state_of(warp.block);
    looked_at_ = 0;
    bool plain = effect.kind == Effect::Kind::Read || effect.kind == Effect::Kind::Write;
    if (plain && lanes == ~uint32_t{0} && access_lines(warp, step, effect))
        return;
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t address = of_mbarrier ? warp.row<uint64_t>(step.rows[9])[lane]
                                       : address_of(warp, step, effect, lane);
        Space space = effect.space == Space::Generic ? ptx::narrow_generic(address) : effect.space;
        if (of_mbarrier)
            space = Space::Shared;
        if (space != Space::Shared && space != Space::Global)
            continue;
        Lane one{warp, step, effect, block, lane, address, space == Space::Shared};
        if (effect.kind == Effect::Kind::Arrive) {
            Told &told = block.words[address];
            told.add(block.clocks.told(one.thread(), true, true));
        } else if (effect.kind == Effect::Kind::Test) {
            block.clocks.see(one.thread(), block.words[address], true, true);
        } else {
            access(one);
        }
        addresses_[lane] = address;
        looked_at_ |= 1u << lane;
    }
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

// Fast path: a whole warp accesses neighbouring items, which fill lines. Returns false, and keeps
// nothing, if each lane has to be looked at.
bool KernelRaces::access_lines(const ptx::Warp &warp, const ptx::Step &step, const Effect &effect) {
    unsigned size = unsigned(effect.item_bytes) * effect.count;
    if (effect.strong || (size != 4 && size != 8 && size != 16))
        return false;
    uint64_t first = address_of(warp, step, effect, 0), wrong = first % line_bytes;
    for (unsigned lane = 0; lane < warp_size; lane++)
        wrong |= address_of(warp, step, effect, lane) ^ (first + uint64_t(lane) * size);
    if (wrong)
        return false;
    Space space = effect.space == Space::Generic ? ptx::narrow_generic(first) : effect.space;
    bool shared = space == Space::Shared;
    uint64_t last = first + uint64_t(size) * warp_size;
    if ((!shared && space != Space::Global) || (shared && last > machine_.shared_bytes))
        return false;
    Block &block = state_of(warp.block);
    Entry entry = entry_of(warp, step, effect);
    entry.bytes = 0xf;
    entry.epoch = block.clocks.now(warp.number * warp_size);
    for (unsigned lane = 1; lane < warp_size; lane++)
        wrong |= block.clocks.now(warp.number * warp_size + lane) ^ entry.epoch;
    unsigned lanes = line_bytes / size; // of a line
    for (unsigned i = 0; i < size / word_bytes; i++) {
        entry.lanes = uint32_t((uint64_t{1} << lanes) - 1) << i * lanes;
        Line &line = line_of(block, shared, first / line_bytes + i);
        if (wrong || !takes(block, line, entry, size, i * lanes))
            return false;
    }
    for (unsigned i = 0; i < size / word_bytes; i++) {
        entry.lanes = uint32_t((uint64_t{1} << lanes) - 1) << i * lanes;
        Line &line = line_of(block, shared, first / line_bytes + i);
        for (size_t old = line.count(); old--;)
            if (entry.writes || !line[old].writes)
                line.drop(old);
        line.add(entry, size, i * lanes);
    }
    return true;
}

// Whether all that is kept of the line is ordered before the access, so that the access can replace
// it, or what it cannot replace leaves room.
bool KernelRaces::takes(Block &block, Line &line, const Entry &entry, unsigned size,
                        unsigned first) const {
    if (!line.takes(size, first))
        return false;
    for (size_t i = 0; i < line.count(); i++) {
        const Entry &old = line[i];
        if (old.block != entry.block)
            return false;
        if (old.warp == entry.warp)
            continue; // of the same threads
        for (uint32_t left = entry.lanes; left; left &= left - 1) {
            unsigned lane = unsigned(__builtin_ctz(left));
            if (block.clocks.unknown(entry.warp * warp_size + lane, old.block, old.warp, 1u << lane,
                                     old.epoch) >= 0)
                return false;
        }
    }
    return true;
}

void KernelRaces::access(const Lane &access) {
    const Effect &effect = access.effect;
    size_t bytes = size_t(effect.item_bytes) * effect.count;
    if (access.shared && access.address + bytes > machine_.shared_bytes)
        return; // the step ends the launch with an error
    Entry entry = entry_of(access.warp, access.step, effect);
    entry.lanes = 1u << access.lane;
    // A strong write that tells what was before a fence is itself known to those who see it.
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
    for (const Entry &earlier : cell) {
        if (!(earlier.bytes & entry.bytes) || !(earlier.writes || entry.writes))
            continue;
        bool apart = earlier.block != entry.block;
        bool strong = earlier.strong && entry.strong && earlier.bytes == entry.bytes &&
                      earlier.size == entry.size &&
                      !(apart && (earlier.only_block || entry.only_block));
        if (strong)
            continue;
        int lane = access.block.clocks.unknown(access.thread(), earlier.block, earlier.warp,
                                               earlier.lanes, earlier.epoch);
        if (lane >= 0) {
            found(access, word, earlier, lane, entry);
            break;
        }
    }
    keep(access, cell, entry);
}

// Keeps an access, and drops those that it makes superfluous: a later access that races with one of
// them races with this one, too.
void KernelRaces::keep(const Lane &access, Cell &cell, const Entry &entry) {
    size_t readers = 0;
    auto superfluous = [&](const Entry &old) {
        bool covered = (old.bytes & ~entry.bytes) == 0;
        bool apart = old.block != entry.block;
        readers += apart && !old.writes;
        // A strong access does not race with the next strong one, and a weak one would.
        if (!covered || (old.writes && !entry.writes) || (entry.strong && !old.strong))
            return false;
        if (entry.writes && !entry.strong)
            return true;
        return !apart && access.block.clocks.unknown(access.thread(), old.block, old.warp,
                                                     old.lanes, old.epoch) < 0;
    };
    Cell &all = cell;
    all.erase(std::remove_if(all.begin(), all.end(), superfluous), all.end());
    for (Entry &old : all)
        if (old.block == entry.block && old.warp == entry.warp && old.epoch == entry.epoch &&
            old.bytes == entry.bytes && old.writes == entry.writes && old.strong == entry.strong) {
            old.lanes |= entry.lanes;
            return;
        }
    if (all.size() < most_entries && (entry.writes || readers < most_readers))
        all.push_back(entry);
}

// What strong accesses tell and see. A weak write tells nothing, and replaces what was told.
void KernelRaces::synchronize(const Lane &access) {
    const Effect &effect = access.effect;
    auto &words = access.shared ? access.block.words : words_;
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
    std::string memory =
        access.shared ? shared_variable(access.address, begin) : describe_(access.address, begin);
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

// Returns the name of the variable in shared memory, and sets `begin` to where it begins.
std::string KernelRaces::shared_variable(uint64_t address, uintptr_t &begin) const {
    const auto &names = machine_.code.shared_names;
    auto behind = names.upper_bound(address);
    if (behind == names.begin())
        return "shared memory";
    begin = std::prev(behind)->first;
    return "shared memory '" + source_name(std::prev(behind)->second) + "'";
}

// Whether a lane stores the bytes that are there already.
bool KernelRaces::stores_the_same(const Lane &access, const Entry &earlier, uint64_t word,
                                  int lane) const {
    char value[most_stored], other[most_stored];
    copy_value(access.warp, access.step, access.effect, access.lane, value);
    size_t bytes = size_t(access.effect.item_bytes) * access.effect.count;
    bool in_this_step = earlier.warp == access.warp.number && looked_at_ >> lane & 1 &&
                        earlier.block == access.block.number &&
                        addresses_[lane] / word_bytes <= word &&
                        word < (addresses_[lane] + bytes + word_bytes - 1) / word_bytes;
    if (in_this_step) { // the memory does not have the bytes of that lane yet
        copy_value(access.warp, access.step, access.effect, unsigned(lane), other);
        return addresses_[lane] == access.address && memcmp(value, other, bytes) == 0;
    }
    const char *there = bytes_at(access);
    return there && memcmp(value, there, bytes) == 0;
}

// The bytes that the lane accesses, or null if it must not.
const char *KernelRaces::bytes_at(const Lane &access) const {
    if (access.shared)
        return access.warp.block.shared.data() + access.address;
    ptx::Segment segment;
    if (!machine_.memory.find(access.address, segment))
        return nullptr;
    return segment.host + (access.address - segment.begin);
}

uint32_t KernelRaces::place_of(const ptx::Warp &warp, const ptx::Step &step) const {
    const ptx::Code &code = *warp.frame->code;
    return uint32_t(code.index) << step_bits |
           (uint32_t(&step - code.body.data()) & ((1u << step_bits) - 1));
}

HazardAccess KernelRaces::described(const Entry &entry, unsigned lane) const {
    const ptx::Code &code = *machine_.library.codes[entry.place >> step_bits];
    size_t step = entry.place & ((1u << step_bits) - 1);
    HazardAccess access;
    access.mode = mode_of(code.effects[step]);
    access.place = code.where(step);
    access.ptx_line = code.lines[step];
    if (code.sources[step].file) {
        access.file = *code.sources[step].file;
        access.line = code.sources[step].line;
    }
    auto spread = [](uint64_t number, const unsigned extents[3], unsigned index[3]) {
        index[0] = unsigned(number % extents[0]);
        index[1] = unsigned(number / extents[0] % extents[1]);
        index[2] = unsigned(number / extents[0] / extents[1]);
    };
    spread(entry.warp * warp_size + lane, machine_.launch.block, access.thread);
    spread(entry.block, machine_.launch.grid, access.block);
    return access;
}

void KernelRaces::starts(ptx::ThreadBlock &block) {
    std::unique_ptr<Block> &known = blocks_[&block];
    std::vector<Line> shared;
    if (known)
        shared = std::move(known->shared);
    shared.resize((machine_.shared_bytes + line_bytes - 1) / line_bytes);
    known = std::make_unique<Block>(uint32_t(block.number), machine_.threads);
    known->shared = std::move(shared);
    known->generation = ++generation_;
    known->met.resize(block.warps.size());
}

void KernelRaces::arrives(const ptx::Warp &warp, unsigned barrier, uint32_t lanes, bool waits) {
    Block &block = state_of(warp.block);
    Arrivals &arrivals = block.barriers[barrier];
    arrivals.waiting.resize(block.met.size());
    if (waits) {
        arrivals.waiting[warp.number] |= lanes;
        return;
    }
    arrivals.only_waiting = false;
    arrivals.told.learn(block.clocks.tell(warp.number, lanes));
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

// All lanes learn from each other when the first group of them goes on: the others have done
// nothing since they came.
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
