#include "check/kernel_init.h"

#include "api/state.h"
#include "base/undefined.h"
#include "check/origins.h"
#include "ptx/access.h"
#include "ptx/matrix.h"
#include "race/race_text.h"

#include <algorithm>
#include <cstring>

namespace soft::check {

using ptx::Flow;
using ptx::Part;
using ptx::Space;
using ptx::warp_size;

void UndefinedBytes::begin(size_t bytes) {
    masks_.assign(bytes, 0xff);
    origins_.assign((bytes + word_bytes - 1) / word_bytes, 0);
    undefined_ = bytes;
}

void UndefinedBytes::undefine(size_t begin, size_t end) {
    end = std::min(end, masks_.size());
    for (size_t i = begin; i < end; i++) {
        undefined_ += !masks_[i];
        masks_[i] = 0xff;
        origins_[i / word_bytes] = 0;
    }
}

bool UndefinedBytes::read(uint64_t begin, size_t bytes, uint8_t *masks, uint32_t &origin) const {
    bool any = false;
    for (size_t i = 0; i < bytes; i++) {
        uint64_t at = begin + i;
        bool known = at < masks_.size();
        masks[i] = known ? masks_[at] : 0xff;
        if (masks[i] && !any)
            origin = known ? origins_[at / word_bytes] : 0;
        any = any || masks[i];
    }
    return any;
}

void UndefinedBytes::write(uint64_t begin, size_t bytes, const uint8_t *masks, uint32_t origin) {
    if (begin + bytes > masks_.size()) {
        undefined_ += begin + bytes - masks_.size();
        masks_.resize(begin + bytes, 0xff);
        origins_.resize(masks_.size() / word_bytes + 1);
    }
    for (size_t i = 0; i < bytes; i++) {
        uint8_t &mask = masks_[begin + i];
        undefined_ += size_t(masks[i] != 0) - size_t(mask != 0);
        mask = masks[i];
        if (mask)
            origins_[(begin + i) / word_bytes] = origin;
    }
}

namespace {

// What the reports call an undefined address, or another operand that must be defined. In the order
// of Flow::Memory.
const char *const operand_uses[] = {
    "condition of a branch", "address of a read", "address of a write", "address of an atomic",
    "address of an atomic",  "operand of a copy", "operand of a copy",  "address of a read",
    "address of a write",    "address of a read", "address of a write", "operand of a product"};
constexpr uint8_t zeros[1024] = {};

bool accesses_memory(const Flow &flow, const ptx::Effect &effect) {
    using Kind = ptx::Effect::Kind;
    bool accesses = effect.kind == Kind::Read || effect.kind == Kind::Write ||
                    effect.kind == Kind::Update || effect.kind == Kind::Other;
    return accesses && flow.memory != Flow::Memory::None;
}

// Returns how many sources of a step are registers with items of matrices.
unsigned items_among_sources(const ptx::Code &code, const ptx::Step &step, const Flow &flow) {
    switch (flow.memory) {
    case Flow::Memory::StoreRows:
        return step.detail & ptx::matrices_mask;
    case Flow::Memory::StoreFragment:
        return unsigned(code.fragments[step.place]->registers.size());
    case Flow::Memory::Product: // those of A
        return unsigned(code.fragments[step.place + 1]->registers.size());
    default:
        return 0;
    }
}

// Sets the memory and the first access of a hazard.
void set_origin(Hazard &hazard, const Origin &origin) {
    hazard.memory = origin.memory;
    hazard.address = origin.address;
    hazard.start = origin.start;
    hazard.stop = origin.stop;
    hazard.first = origin.read;
}

// Says what is to be done about undefined memory.
std::string remedy(const Origin &origin) {
    if (origin.is_local)
        return "Initialize the variable";
    if (origin.is_shared)
        return "Write this shared memory before it is read";
    return "Write the memory before, for example with zeros, or do not use what is not written";
}

} // namespace

Registers &KernelInit::registers_of(const ptx::Frame &frame) {
    if (&frame == last_frame_)
        return *last_registers_;
    std::unique_ptr<Registers> &found = registers_[&frame];
    if (!found)
        found = std::make_unique<Registers>(*frame.code);
    last_frame_ = &frame;
    last_registers_ = found.get();
    return *found;
}

UndefinedBytes &KernelInit::shared_of(const ptx::ThreadBlock &block) {
    if (&block != last_block_) {
        last_block_ = &block;
        last_shared_ = &shared_[&block];
    }
    return *last_shared_;
}

void KernelInit::starts(ptx::ThreadBlock &block) {
    UndefinedBytes &shared = shared_of(block);
    shared.begin(machine_.shared_bytes);
    if (machine_.launch.kernel->uses_reserved_shared) { // it begins with zeros
        const std::vector<uint8_t> defined(ptx::reserved_shared_bytes);
        shared.write(machine_.reserved_begin, defined.size(), defined.data(), 0);
    }
}

void KernelInit::calls(const ptx::Warp &warp, const ptx::Frame &frame) {
    registers_of(frame).clear();
    auto local = local_.find(&warp);
    if (local == local_.end() || !local->second.written)
        return;
    local->second.written = frame.caller;
    for (unsigned lane = 0; lane < warp_size; lane++)
        if (!frame.caller)
            local->second.lanes[lane].begin(0);
        else if (frame.lanes >> lane & 1)
            local->second.lanes[lane].undefine(frame.local_begin,
                                               frame.local_begin + frame.code->local_bytes);
}

void KernelInit::passes(const ptx::Warp &warp, const ptx::Frame &from, const ptx::Frame &to,
                        const std::vector<ptx::Transfer> &transfers) {
    Registers &source = registers_of(from), &target = registers_of(to);
    Local &local = local_[&warp];
    for (const ptx::Transfer &part : transfers)
        for (uint32_t left = warp.active; left; left &= left - 1) {
            unsigned lane = unsigned(__builtin_ctz(left));
            // A predicate that is passed in memory takes two bytes.
            size_t bytes = part.predicate ? 2 : part.bytes;
            std::vector<uint8_t> masks(std::max<size_t>(bytes, sizeof(uint64_t)));
            uint32_t origin = 0;
            Part row{part.from, uint8_t(part.predicate ? 0 : part.bytes)};
            if (part.from_row) {
                uint64_t mask = source.mask(row, lane);
                memcpy(masks.data(), &mask, sizeof mask);
                origin = source.origin(row);
            } else
                local.lanes[lane].read(from.local_begin + part.from, bytes, masks.data(), origin);
            if (!part.to_row) {
                local.lanes[lane].write(to.local_begin + part.to, bytes, masks.data(), origin);
                local.written = true;
                continue;
            }
            Masks all{};
            memcpy(&all[lane], masks.data(), std::min(bytes, sizeof(uint64_t)));
            row.row = part.to;
            // The value of a parameter that the caller has not set counts as defined.
            target.set(row, 1u << lane, origin ? all : Masks{}, origin);
        }
}

void KernelInit::uses(const ptx::Warp &warp, unsigned lane, Space space, uint64_t address,
                      size_t bytes, ptx::Use use) {
    if (collects_)
        used_.push_back({lane, space, address, bytes});
    if (moves_ && use == ptx::Use::Atomic)
        return; // moves() needs the definedness that the bytes had before
    for (size_t done = 0; done < bytes && ptx::writes(use); done += sizeof zeros)
        write(warp, {lane, space, address + done, std::min(bytes - done, sizeof zeros)}, zeros, 0);
}

// What is printed matters, as what is copied to the host.
void KernelInit::prints(const ptx::Warp &warp, const ptx::Step &step, unsigned lane, Space space,
                        uint64_t address, size_t bytes) {
    const ptx::Code &code = *warp.frame->code;
    Now before = now_; // the running step as a whole, if its registers are checked
    now_.warp = &warp;
    now_.step = &step;
    now_.flow = &code.flows[size_t(&step - code.body.data())];
    std::array<uint8_t, most_accessed> masks;
    for (size_t done = 0; done < bytes; done += most_accessed) {
        Bytes part{lane, space, address + done, std::min(bytes - done, most_accessed)};
        uint32_t stored = 0;
        if (!read(part, masks.data(), stored))
            continue;
        found(origin_of(part, masks.data(), stored), lane, "argument of printf");
        write(warp, part, zeros, 0);
    }
    now_ = before;
}

// Returns whether the pages with these bytes of global memory are defined.
bool KernelInit::is_clean(uint64_t address, size_t bytes) {
    constexpr uint64_t page_bytes = UndefinedMemory::page_bytes;
    uint64_t version = undefined_memory().changed();
    uint64_t first = address / page_bytes, last = (address + bytes - 1) / page_bytes;
    for (uint64_t page = first; page <= last; page++) {
        Clean &known = clean_[page % clean_.size()];
        if (known.page == page && known.version == version)
            continue;
        if (!undefined_memory().is_clean(page * page_bytes, page_bytes))
            return false;
        known = {page, version};
    }
    return true;
}

bool KernelInit::read(const Bytes &bytes, uint8_t *masks, uint32_t &origin) {
    switch (bytes.space) {
    case Space::Global:
        return !is_clean(bytes.address, bytes.count) &&
               undefined_memory().read(bytes.address, bytes.count, masks, origin);
    case Space::Shared: {
        const UndefinedBytes &shared = shared_of(now_.warp->block);
        return bytes.address + bytes.count <= machine_.shared_bytes && !shared.is_clean() &&
               shared.read(bytes.address, bytes.count, masks, origin);
    }
    case Space::Local:
        return local_[now_.warp].lanes[bytes.lane].read(bytes.address, bytes.count, masks, origin);
    default:
        return false;
    }
}

void KernelInit::write(const ptx::Warp &warp, const Bytes &bytes, const uint8_t *masks,
                       uint32_t origin) {
    bool clean = !origin;
    if (bytes.space == Space::Global) {
        if (!clean || !is_clean(bytes.address, bytes.count))
            undefined_memory().write(bytes.address, bytes.count, masks, origin);
    } else if (bytes.space == Space::Shared) {
        UndefinedBytes &shared = shared_of(warp.block);
        if (bytes.address + bytes.count <= machine_.shared_bytes && !(clean && shared.is_clean()))
            shared.write(bytes.address, bytes.count, masks, origin);
    } else if (bytes.space == Space::Local &&
               bytes.address + bytes.count <= ptx::most_local_bytes) {
        Local &local = local_[&warp];
        local.written = true;
        local.lanes[bytes.lane].write(bytes.address, bytes.count, masks, origin);
    }
}

// Sets the memory that a lane accesses. Returns false if it accesses none.
bool KernelInit::finds_address(unsigned lane, Bytes &bytes) const {
    const ptx::Effect &effect = *now_.effect;
    bytes.lane = lane;
    bytes.address = address_of(*now_.warp, *now_.step, effect, lane);
    bytes.space =
        effect.space == Space::Generic ? ptx::narrow_generic(bytes.address) : effect.space;
    bytes.count = size_t(effect.item_bytes) * effect.count;
    return bytes.count && bytes.count <= most_accessed;
}

void KernelInit::run(ptx::Warp &warp, const ptx::Step &step) {
    const ptx::Effect &effect = effect_of(warp, step);
    // Fast path: most steps compute, and nothing is undefined.
    if (!looks_at(warp, effect))
        return step.run(warp, step);
    before(warp, step, effect);
    knows_uses = effect.says_all();
    step.run(warp, step);
    knows_uses = false;
    after(warp, step, effect);
}

void KernelInit::before(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) {
    const ptx::Code &code = *warp.frame->code;
    const Flow &flow = code.flows[size_t(&step - code.body.data())];
    results_.clear();
    stores_.clear();
    Registers &registers = registers_of(*warp.frame);
    bool accesses = accesses_memory(flow, effect);
    if (registers.is_clean() && !accesses)
        return; // all results are defined, as before
    const Part *parts = code.parts.data() + flow.begin;
    now_ = {&warp,      &step,
            &effect,    &flow,
            parts,      parts + flow.results,
            &registers, lanes_of(warp, step)};
    if (!registers.is_clean()) {
        check_guard();
        check_sources();
    }
    if (!accesses)
        return look_at_results();
    bool is_simple = flow.memory <= Flow::Memory::StoreRows && flow.memory != Flow::Memory::Bulk;
    if (registers.is_clean() && is_simple && accesses_clean_memory())
        return;
    switch (flow.memory) {
    case Flow::Memory::Load:
        return load();
    case Flow::Memory::Store:
        return store();
    case Flow::Memory::Copy:
        return copy();
    case Flow::Memory::Update:
    case Flow::Memory::Exchange:
        return update();
    case Flow::Memory::Bulk:
        moves_ = true;
        return;
    default:
        used_.clear();
        collects_ = true;
    }
}

// Fast path: returns whether all bytes that the step accesses are defined. May also return false if
// they are.
bool KernelInit::accesses_clean_memory() {
    constexpr uint64_t farthest = 1 << 16;
    const ptx::Effect &effect = *now_.effect;
    if (effect.space == Space::Param || effect.space == Space::Const)
        return true;
    if (effect.space == Space::Shared && now_.flow->memory != Flow::Memory::Copy)
        return shared_of(now_.warp->block).is_clean();
    bool is_global = effect.space == Space::Global || effect.space == Space::Generic;
    if (!is_global || !now_.lanes)
        return false;
    const Addresses *addresses = shared_addresses_;
    if (!addresses || !addresses->is_of(*now_.step, now_.lanes)) {
        addresses_.find(*now_.warp, *now_.step, effect, now_.lanes);
        addresses = &addresses_;
    }
    if (!addresses->in_one_space() ||
        addresses->space(unsigned(__builtin_ctz(now_.lanes))) != Space::Global)
        return false;
    uint64_t first = ~uint64_t{0}, last = 0;
    for (const Run &run : *addresses) {
        first = std::min(first, run.first);
        last = std::max(last, run.first + (run.count - 1) * run.stride);
    }
    return last - first < farthest &&
           is_clean(first, last - first + size_t(effect.item_bytes) * effect.count);
}

// A guard decides whether the results change. If the guard is undefined, so are they.
void KernelInit::look_at_results() {
    if (now_.registers->is_clean() || !now_.flow->results)
        return;
    if (now_.flow->rule == Flow::Rule::Product)
        return multiply_matrices();
    if (now_.flow->rule == Flow::Rule::Transpose)
        return transpose_matrix();
    propagate(*now_.warp, *now_.step, *now_.flow, *now_.registers, results_);
}

void KernelInit::check_guard() {
    if (!now_.step->guarded)
        return;
    Part guard{now_.step->guard, 0};
    uint32_t undefined = now_.registers->lanes(guard) & now_.warp->active;
    if (undefined && now_.flow->decides)
        check_register(guard, now_.warp->active,
                       now_.step->is_branch                       ? "condition of a branch"
                       : now_.flow->memory == Flow::Memory::Store ? "condition of a write"
                                                                  : "condition of an instruction");
}

void KernelInit::check_sources() {
    const Flow &flow = *now_.flow;
    bool accesses = accesses_memory(flow, *now_.effect);
    const char *use = now_.effect->kind == ptx::Effect::Kind::Barrier
                          ? "operand of a barrier"
                          : operand_uses[int(flow.memory)];
    if (accesses && !flow.needs_all && now_.effect->space != Space::Param)
        check_register({now_.step->rows[9], now_.effect->address_bytes}, now_.lanes, use);
    if (!flow.needs_all || (flow.memory != Flow::Memory::None && !accesses))
        return;
    unsigned items = items_among_sources(*now_.warp->frame->code, *now_.step, flow);
    for (unsigned i = 0; i + items < flow.sources; i++)
        check_register(now_.sources[i], now_.lanes, use);
}

// Reports a register if it is undefined in one of the lanes. From then on it counts as defined.
void KernelInit::check_register(Part part, uint32_t lanes, const char *use) {
    uint32_t undefined = now_.registers->lanes(part) & lanes;
    for (uint32_t left = undefined; left; left &= left - 1)
        found(now_.registers->origin(part), unsigned(__builtin_ctz(left)), use);
    if (undefined)
        now_.registers->define(part, undefined);
}

void KernelInit::load() {
    const ptx::Effect &effect = *now_.effect;
    for (unsigned i = 0; i < now_.flow->results; i++)
        results_.emplace_back().part = now_.results[i];
    if (effect.space == Space::Param || effect.space == Space::Const)
        return;
    for (uint32_t left = now_.lanes; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        Bytes bytes;
        std::array<uint8_t, most_accessed> masks;
        uint32_t stored = 0;
        if (!finds_address(lane, bytes) || !read(bytes, masks.data(), stored))
            continue;
        uint32_t origin = origin_of(bytes, masks.data(), stored);
        for (unsigned i = 0; i < results_.size() && i < effect.count; i++) {
            uint64_t mask = 0;
            memcpy(&mask, &masks[i * effect.item_bytes], std::min<size_t>(effect.item_bytes, 8));
            if (now_.flow->is_signed)
                mask = sign_extended(mask, 8u * effect.item_bytes);
            results_[i].masks[lane] = mask & all_bits(results_[i].part.width);
            if (mask)
                results_[i].origin = origin;
        }
    }
}

void KernelInit::store() {
    const ptx::Effect &effect = *now_.effect;
    for (uint32_t left = now_.lanes; left; left &= left - 1) {
        Store store{};
        unsigned lane = unsigned(__builtin_ctz(left));
        if (!finds_address(lane, store.bytes))
            continue;
        if (!now_.registers->is_clean())
            for (unsigned i = 0; i < effect.count && i < now_.flow->sources; i++) {
                uint64_t mask = now_.registers->mask(now_.sources[i], lane);
                memcpy(&store.masks[i * effect.item_bytes], &mask,
                       std::min<size_t>(effect.item_bytes, 8));
                store.origin = mask ? now_.registers->origin(now_.sources[i]) : store.origin;
            }
        stores_.push_back(store);
    }
}

void KernelInit::update() {
    look_at_results();
    bool exchanges = now_.flow->memory == Flow::Memory::Exchange;
    for (uint32_t left = now_.lanes; left; left &= left - 1) {
        Store store{};
        unsigned lane = unsigned(__builtin_ctz(left));
        if (!finds_address(lane, store.bytes))
            continue;
        uint32_t stored = 0;
        if (read(store.bytes, store.masks.data(), stored)) {
            uint32_t origin = origin_of(store.bytes, store.masks.data(), stored, !exchanges);
            if (!exchanges)
                found(origin, lane, "update", !stored);
            else if (now_.flow->results)
                give_back(store, origin);
        }
        store.masks.fill(0);
        for (unsigned i = 0; i < now_.flow->sources; i++)
            if (now_.registers->mask(now_.sources[i], lane)) {
                store.origin = now_.registers->origin(now_.sources[i]);
                store.masks.fill(0xff);
            }
        stores_.push_back(store);
    }
}

// An exchange returns what was in memory.
void KernelInit::give_back(const Store &store, uint32_t origin) {
    if (results_.empty())
        results_.emplace_back().part = now_.results[0];
    memcpy(&results_[0].masks[store.bytes.lane], store.masks.data(),
           std::min<size_t>(store.bytes.count, results_[0].part.width));
    results_[0].origin = origin;
}

// cp.async: rows[1] has the addresses of the source, and rows[2] how many bytes are read.
void KernelInit::copy() {
    for (uint32_t left = now_.lanes; left; left &= left - 1) {
        Store store{};
        unsigned lane = unsigned(__builtin_ctz(left));
        if (!finds_address(lane, store.bytes))
            continue;
        Bytes source{lane, Space::Global, now_.warp->row<uint64_t>(now_.step->rows[1])[lane],
                     now_.warp->row<uint32_t>(now_.step->rows[2])[lane]};
        uint32_t stored = 0;
        if (source.count && source.count <= store.bytes.count &&
            read(source, store.masks.data(), stored))
            store.origin = origin_of(source, store.masks.data(), stored);
        stores_.push_back(store);
    }
}

void KernelInit::after(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &) {
    moves_ = false;
    if (collects_)
        finish_matrices();
    if (results_.empty() && stores_.empty())
        return;
    uint32_t ran = now_.lanes & warp.mask; // lanes that wait for others try the step again
    Registers &registers = *now_.registers;
    uint32_t unsure = 0, origin = 0;
    if (step.guarded && !now_.flow->decides && !registers.is_clean()) {
        Part guard{step.guard, 0};
        unsure = registers.lanes(guard) & warp.mask;
        origin = registers.origin(guard);
    }
    for (Result &result : results_) {
        registers.set(result.part, ran, result.masks, result.origin);
        if (!unsure)
            continue;
        result.masks.fill(all_bits(result.part.width));
        registers.set(result.part, unsure, result.masks, origin);
    }
    for (const Store &store : stores_)
        if (ran >> store.bytes.lane & 1)
            write(warp, store.bytes, store.masks.data(), store.origin);
}

// Returns the origin of undefined bytes that a lane reads. `stored` is the origin of the value that
// a kernel has stored there, or 0 if no kernel has.
uint32_t KernelInit::origin_of(const Bytes &bytes, const uint8_t *masks, uint32_t stored,
                               bool updates) {
    if (stored)
        return stored;
    const ptx::Warp &warp = *now_.warp;
    uint32_t place = place_of(warp, *now_.step);
    size_t step;
    int ptx_line = code_at(machine_, place, step).lines[step];
    size_t first = 0;
    while (!masks[first])
        first++;
    size_t end = first;
    while (end < bytes.count && masks[end])
        end++;
    uintptr_t begin = 0, address = bytes.address + first;
    std::string memory = bytes.space == Space::Local    ? "local memory"
                         : bytes.space == Space::Shared ? shared_variable(machine_, address, begin)
                                                        : describe_(address, begin);
    return origins().add(machine_.launch.kernel->name, ptx_line, memory, [&] {
        Origin origin;
        origin.memory = memory;
        origin.address = bytes.space == Space::Global ? begin : 0;
        origin.start = address - begin;
        origin.stop = origin.start + (end - first);
        origin.is_shared = bytes.space == Space::Shared;
        origin.is_local = bytes.space == Space::Local;
        origin.read = access_at(machine_, place, updates ? "atomic" : "read", warp.block.number,
                                warp.number * warp_size + bytes.lane);
        return origin;
    });
}

// Reports that a lane uses an undefined value. With `only_first`, the use is the first read.
void KernelInit::found(uint32_t number, unsigned lane, const char *use, bool only_first) {
    const ptx::Warp &warp = *now_.warp;
    uint32_t place = place_of(warp, *now_.step);
    std::tuple<uint32_t, uint32_t, std::string> places{number, place, use};
    if (const Hazards::Key *known = found_.find(places))
        return report_(*known, false, nullptr);
    if (!found_.is_new(uint64_t(number) << 32 | place))
        return;
    Origin origin = origins()[number];
    HazardAccess second =
        access_at(machine_, place, use, warp.block.number, warp.number * warp_size + lane);
    Hazards::Key key{machine_.launch.kernel->name, "uninitialized", origin.memory,
                     origin.read.ptx_line, second.ptx_line};
    found_.keep(places, key);
    report_(key, false, [&] {
        Hazard hazard;
        hazard.kind = "uninitialized";
        hazard.kernel = machine_.launch.kernel->name;
        set_origin(hazard, origin);
        hazard.has_second = !only_first;
        if (!only_first)
            hazard.second = second;
        hazard.remedy = remedy(origin);
        return hazard;
    });
}

void report_undefined_copy(const Operation &copy, uintptr_t begin, uintptr_t end, uint32_t number) {
    Lock lock(state().mutex);
    if (state().settings.hazards == RaceMode::Off)
        return;
    Hazard hazard;
    hazard.kind = "uninitialized";
    const Allocation *allocation = find_allocation(begin);
    hazard.address = allocation ? allocation->begin : begin;
    hazard.memory = describe_memory(hazard.address);
    hazard.start = begin - hazard.address;
    hazard.stop = end - hazard.address;
    hazard.has_first = number != 0;
    Origin origin;
    if (number) {
        origin = origins()[number];
        set_origin(hazard, origin);
    }
    hazard.second.mode = "copy";
    hazard.second.place = race_name(copy);
    hazard.copy = copy.label;
    hazard.remedy = remedy(origin);
    // Copies at different Python lines are different hazards, if the client has told the line.
    std::string memory = hazard.memory + "/" + std::to_string(copy.label.numbers[0]);
    Hazards::Key key = {"", "uninitialized", memory, hazard.first.ptx_line, 0};
    state().hazards.add(key, false, state().settings.hazards, [&] { return hazard; });
}

} // namespace soft::check
