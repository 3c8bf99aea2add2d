#include "check/kernel_sync.h"

#include "ptx/mbarrier.h"
#include "ptx/shuffle.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace soft::check {

using ptx::Effect;
using ptx::warp_size;

namespace {

constexpr const char *lanes_of_warp = "the lanes of a warp";

// The names in CUDA C of instructions, by a part of the PTX. The first ones are for barrier 0.
struct Name {
    const char *part, *name;
};
constexpr Name block_names[] = {
    {".popc", "__syncthreads_count"},
    {".and", "__syncthreads_and"},
    {".or", "__syncthreads_or"},
    {".sync", "__syncthreads"},
};
constexpr Name warp_names[] = {
    {"bar.warp.sync", "__syncwarp"},         {"barrier.warp", "__syncwarp"},
    {"shfl.sync.up", "__shfl_up_sync"},      {"shfl.sync.down", "__shfl_down_sync"},
    {"shfl.sync.bfly", "__shfl_xor_sync"},   {"shfl.sync.idx", "__shfl_sync"},
    {"vote.sync.all", "__all_sync"},         {"vote.sync.any", "__any_sync"},
    {"vote.sync.uni", "__uni_sync"},         {"vote.sync.ballot", "__ballot_sync"},
    {"match.any", "__match_any_sync"},       {"match.all", "__match_all_sync"},
    {"redux.sync.add", "__reduce_add_sync"}, {"redux.sync.min", "__reduce_min_sync"},
    {"redux.sync.max", "__reduce_max_sync"}, {"redux.sync.and", "__reduce_and_sync"},
    {"redux.sync.or", "__reduce_or_sync"},   {"redux.sync.xor", "__reduce_xor_sync"},
};

// Returns the name of an instruction in CUDA C, or the instruction itself.
template <size_t n> std::string name_of(const std::string &written, const Name (&names)[n]) {
    for (const Name &known : names)
        if (written.find(known.part) != std::string::npos)
            return known.name;
    return written;
}

std::string hexadecimal(uint32_t mask) {
    char text[11];
    std::snprintf(text, sizeof text, "0x%08x", mask);
    return text;
}

unsigned lowest(uint32_t lanes) { return unsigned(__builtin_ctz(lanes)); }
uint32_t bit(unsigned lane) { return uint32_t{1} << lane; }

unsigned thread_of(const ptx::Warp &warp, unsigned lane) {
    return warp.number * unsigned(warp_size) + lane;
}

bool is_warp_barrier(const std::string &written) {
    return name_of(written, warp_names) == std::string("__syncwarp");
}

// Returns the step of the kernel that a step belongs to: a call, if the step is in a function.
size_t step_of_kernel(const ptx::Warp &warp, const ptx::Step &step) {
    const ptx::Step *of_kernel = &step;
    for (const ptx::Frame *frame = warp.frame; frame->caller; frame = frame->caller)
        of_kernel = frame->call;
    return size_t(of_kernel - warp.machine.code.body.data());
}

// Returns whether a step does what a thread should not do before it ends, if others wait for it.
bool is_access(const Effect &effect) {
    switch (effect.kind) {
    case Effect::Kind::Read:
    case Effect::Kind::Write:
    case Effect::Kind::Update:
        return effect.space != ptx::Space::Local && effect.space != ptx::Space::Param &&
               effect.space != ptx::Space::Const;
    case Effect::Kind::Arrive:
    case Effect::Kind::Test:
    case Effect::Kind::Meet:
    case Effect::Kind::Barrier:
        return true;
    default:
        return false;
    }
}

// Wait::number of lanes that arrive at the barrier of their cluster. Those that wait there have
// barrier_of_cluster.
constexpr unsigned arrivals_at_cluster = ptx::barrier_of_cluster + 1;

std::string barrier_name(unsigned number) {
    return number < ptx::barriers_of_block ? "barrier " + std::to_string(number)
                                           : "the barrier of the cluster";
}

unsigned whole_warps(unsigned threads) {
    return (threads + unsigned(warp_size) - 1) / unsigned(warp_size) * unsigned(warp_size);
}

std::string threads_text(unsigned number) {
    return std::to_string(number) + (number == 1 ? " thread" : " threads");
}

} // namespace

std::string KernelSync::name_at(uint32_t place) const {
    size_t step;
    const ptx::Code &code = code_at(machine_, place, step);
    const std::string &written = code.written[step];
    return code.effects[step].whole_block ? name_of(written, block_names)
                                          : name_of(written, warp_names);
}

void KernelSync::report(const ptx::ThreadBlock &block, const Story &story) {
    auto described = [&](const Done &done) {
        return access_at(machine_, done.place, name_at(done.place), block.number, done.thread);
    };
    HazardAccess first = described(story.first), second;
    if (story.second)
        second = described(*story.second);
    const std::string &kernel = machine_.launch.kernel->name;
    // A compiler may have unrolled a loop, so the same lines of the source are the same hazard.
    bool has_lines = first.line && (!story.second || second.line);
    auto lines = has_lines ? std::minmax(first.line, second.line)
                           : std::minmax(first.ptx_line, second.ptx_line);
    Hazards::Key key = {kernel, "barrier", story.memory, lines.first, lines.second};
    std::pair<uint64_t, unsigned> where = {block.number, story.first.thread};
    auto [known, is_new] = found_.try_emplace(key, where);
    if (!is_new && known->second <= where)
        return report_(key, false, nullptr);
    known->second = where;
    report_(key, false, [&] {
        Hazard hazard;
        hazard.kind = "barrier";
        hazard.kernel = kernel;
        hazard.memory = story.memory;
        hazard.start = story.start;
        hazard.stop = story.stop;
        hazard.first = first;
        hazard.second = second;
        hazard.has_second = story.second != nullptr;
        hazard.story = first.told() + " " + story.middle;
        if (story.second)
            hazard.story += " " + second.told() + story.end;
        hazard.remedy = story.remedy;
        return hazard;
    });
}

void KernelSync::run(ptx::Warp &warp, const ptx::Step &step) {
    const Effect &effect = effect_of(warp, step);
    if (effect.kind == Effect::Kind::None)
        return step.run(warp, step);
    before(warp, step, effect);
    step.run(warp, step);
    after(warp, step, effect);
}

void KernelSync::before(ptx::Warp &warp, const ptx::Step &step, const Effect &effect) {
    if (effect.kind == Effect::Kind::None)
        return;
    uint32_t lanes = lanes_of(warp, step);
    if (!lanes)
        return;
    if (is_access(effect))
        keep_last(warp, step, lanes);
    UnfinishedCopies &copies = state_of(warp.block).copies;
    auto for_each_thread = [&](auto &&act) {
        for (uint32_t left = lanes; left; left &= left - 1)
            act(thread_of(warp, lowest(left)));
    };
    switch (effect.kind) {
    case Effect::Kind::Meet:
        return meet(warp, step, lanes);
    case Effect::Kind::Test:
        testing_ = lanes; // the step may change its guard
        return;
    case Effect::Kind::Write:
        if (effect.copies)
            for_each_thread([&](unsigned thread) { copies.begin({place_of(warp, step), thread}); });
        return;
    case Effect::Kind::Commit:
        if (effect.actor != Effect::Actor::Copy)
            return;
        return for_each_thread([&](unsigned thread) { copies.commit(thread); });
    case Effect::Kind::Await:
        if (effect.actor != Effect::Actor::Copy)
            return;
        return for_each_thread(
            [&](unsigned thread) { copies.await(thread, effect.count, effect.copies); });
    default:
        return;
    }
}

void KernelSync::after(ptx::Warp &warp, const ptx::Step &step, const Effect &effect) {
    if (effect.kind != Effect::Kind::Test || machine_.failed())
        return;
    Block &block = state_of(warp.block);
    for (uint32_t left = testing_ & warp.predicate(step.rows[0]); left; left &= left - 1) {
        uint64_t address = tested_[lowest(left)];
        if (const Mbarriers::State *state = block.mbarriers.find(address))
            block.copies.ended(address, state->phase);
    }
}

void KernelSync::starts(ptx::ThreadBlock &block) {
    std::unique_ptr<Block> &known = blocks_[&block];
    if (!known)
        known = std::make_unique<Block>();
    known->warps.resize(block.warps.size());
    known->phases = {};
    known->mbarriers = {};
    known->copies = {};
    for (size_t i = 0; i < block.warps.size(); i++)
        known->warps[i].begin(block.warps[i]->live);
}

void KernelSync::WarpState::begin(uint32_t of_warp) {
    time = 0;
    confused = false;
    lanes = of_warp;
    at_cluster = 0;
    waits.clear();
    last_of_all = {};
    if (apart)
        std::fill(std::begin(last_of), std::end(last_of), Last());
    apart = false;
}

void KernelSync::ends(const ptx::ThreadBlock &block) {
    state_of(block).copies.for_each([&](const Done &copy) {
        bool bulk = name_at(copy.place).find("bulk") != std::string::npos;
        Story story;
        story.memory = "shared memory";
        story.first = copy;
        story.middle = "copies into shared memory, and the block ends before anything waits for it";
        story.remedy = bulk ? "wait for the phase of its mbarrier (mbarrier.try_wait)"
                            : "add __pipeline_wait_prior(0) (cp.async.wait_all) before the end";
        report(block, story);
    });
}

void KernelSync::keep_last(const ptx::Warp &warp, const ptx::Step &step, uint32_t lanes) {
    WarpState &state = state_of(warp);
    Last last = {true, place_of(warp, step), step_of_kernel(warp, step), ++state.time};
    if (lanes == state.lanes) {
        state.last_of_all = last;
        return;
    }
    state.apart = true;
    for (uint32_t left = lanes; left; left &= left - 1)
        state.last_of[lowest(left)] = last;
}

KernelSync::Wait *KernelSync::find(WarpState &state, bool barrier, uint32_t number) const {
    for (Wait &wait : state.waits)
        if (wait.barrier == barrier && wait.number == number)
            return &wait;
    return nullptr;
}

// Adds lanes to those that wait for a mask or at a barrier.
KernelSync::Wait &KernelSync::wait_at(const ptx::Warp &warp, const ptx::Step &step, bool barrier,
                                      uint32_t number, uint32_t lanes) {
    WarpState &state = state_of(warp);
    Wait *wait = find(state, barrier, number);
    if (!wait) {
        wait = &state.waits.emplace_back();
        wait->barrier = barrier;
        wait->number = number;
        wait->place = place_of(warp, step);
        wait->step = step_of_kernel(warp, step);
        wait->expected = barrier ? state.lanes : number & state.lanes;
        wait->since = state.time;
    }
    wait->lanes |= lanes;
    return *wait;
}

// Returns whether what a lane did last is behind a step of the kernel at which others waited. In a
// loop this is so if the lane did it after they had begun to wait (`later`). When a compiler merges
// two pieces of code, it gives the result the line 0, so nothing is known about this code.
bool KernelSync::is_behind(size_t step, const Last &last, bool later) {
    if (!last.known)
        return false;
    const ptx::SourceLine &source = machine_.code.sources[last.step];
    return (!source.file || source.line) && flow_.leads_to(step, last.step) &&
           (later || !flow_.leads_to(last.step, step));
}

// Looks at the lanes that have ended instead of coming. If what they did last is behind the place
// where others wait, they have gone on without them.
void KernelSync::look_at_ended(const ptx::Warp &warp, const Wait &wait) {
    const WarpState &state = state_of(warp);
    for (uint32_t left = wait.expected & ~warp.live & ~wait.lanes; left; left &= left - 1) {
        const Last &last = state.last(lowest(left));
        if (is_behind(wait.step, last, last.time > wait.since))
            return left_alone(warp, wait, lowest(left), last.place);
    }
}

// Reports that a lane executes `place`, although the lanes of `wait` wait for it elsewhere.
void KernelSync::left_alone(const ptx::Warp &warp, const Wait &wait, unsigned lane,
                            uint32_t place) {
    if (std::exchange(state_of(warp).confused, true))
        return;
    Done second = {place, thread_of(warp, lane)};
    std::string name = name_at(wait.place);
    Story story;
    story.memory = wait.barrier ? barrier_name(wait.number) : lanes_of_warp;
    story.first = {wait.place, thread_of(warp, lowest(wait.lanes))};
    story.second = &second;
    if (wait.barrier) {
        story.middle = "is for whole warps, and a lane of the same warp goes on without it:";
        story.remedy = wait.number >= ptx::barriers_of_block
                           ? "let all threads of the warp reach it together, or omit .aligned"
                           : "let all threads of the warp reach the same " + name +
                                 "(): move it out of the branch, or use __syncwarp(mask)";
    } else {
        story.middle = "waits for the lanes of its mask " + hexadecimal(wait.number) +
                       ", and one of them goes on without it:";
        story.remedy = "let all lanes of the mask call it, or pass the mask of those that do: " +
                       hexadecimal(wait.lanes) + " here";
    }
    report(warp.block, story);
}

// Looks at a step in which each lane waits for the lanes of its mask.
void KernelSync::meet(ptx::Warp &warp, const ptx::Step &step, uint32_t lanes) {
    if (!step.offset)
        return look_at_sources(warp, step, lanes);
    while (lanes) {
        uint32_t tile = ptx::Warp::first_tile(warp.row<uint32_t>(step.rows[9]), lanes);
        meet_in_tile(warp, step, tile);
        lanes &= ~tile;
    }
}

// Looks at the lanes that meet. The step runs several times, until all have come.
void KernelSync::meet_in_tile(const ptx::Warp &warp, const ptx::Step &step, uint32_t lanes) {
    uint32_t mask = warp.row<uint32_t>(step.rows[9])[lowest(lanes)];
    if (!warp.has_met(mask, lanes)) {
        wait_at(warp, step, false, mask, lanes);
        return;
    }
    look_at_others(warp, step, mask);
    WarpState &state = state_of(warp);
    Wait &wait = wait_at(warp, step, false, mask, lanes);
    look_at_ended(warp, wait);
    state.waits.erase(state.waits.begin() + (&wait - state.waits.data()));
    look_at_masks(warp, step, mask, lanes);
    look_at_sources(warp, step, lanes);
}

// Looks for lanes that are missing from their own mask, and for pairs of lanes of one mask that
// give different masks.
void KernelSync::look_at_masks(const ptx::Warp &warp, const ptx::Step &step, uint32_t mask,
                               uint32_t lanes) {
    const auto *masks = warp.row<uint32_t>(step.rows[9]);
    Story story;
    story.memory = lanes_of_warp;
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned lane = lowest(left);
        story.first = {place_of(warp, step), thread_of(warp, lane)};
        if (!(masks[lane] & bit(lane))) {
            story.middle = "has the mask " + hexadecimal(masks[lane]) +
                           ", in which the thread's own lane " + std::to_string(lane) + " is not";
            story.remedy = "call it only in the lanes of the mask";
            return report(warp.block, story);
        }
        uint32_t first = bit(lowest(lanes)); // whose mask is `mask`
        if (masks[lane] != mask && (mask & bit(lane) || masks[lane] & first)) {
            unsigned owner = mask & bit(lane) ? lowest(lanes) : lane; // of the mask with both
            unsigned other = mask & bit(lane) ? lane : lowest(lanes);
            story.first.thread = thread_of(warp, other);
            Done second = {place_of(warp, step), thread_of(warp, owner)};
            story.middle = "has the mask " + hexadecimal(masks[other]) + ", and";
            story.second = &second;
            story.end = " has the mask " + hexadecimal(masks[owner]) + ", in which both lanes are";
            story.remedy = "pass the same mask in all lanes of a mask";
            return report(warp.block, story);
        }
    }
}

// If lanes have met at different steps, checks whether these steps may meet.
void KernelSync::look_at_others(const ptx::Warp &warp, const ptx::Step &step, uint32_t mask) {
    const ptx::Code &code = *warp.frame->code;
    const std::string &written = code.written[size_t(&step - code.body.data())];
    for (const ptx::Group &group : warp.waiting()) {
        if (group.wait != ptx::Group::Wait::Met || group.number != mask || group.next == &step)
            continue;
        const ptx::Code &other = *group.frame->code;
        if (is_warp_barrier(written) &&
            is_warp_barrier(other.written[size_t(group.next - other.body.data())]))
            continue;
        if (std::exchange(state_of(warp).confused, true))
            return;
        Done second = {place_of(other, *group.next), thread_of(warp, lowest(group.mask))};
        Story story;
        story.memory = lanes_of_warp;
        story.first = {place_of(warp, step), thread_of(warp, lowest(warp.mask))};
        story.middle = "needs all lanes of its mask " + hexadecimal(mask) +
                       " at the same place, and one of them is elsewhere:";
        story.second = &second;
        story.remedy = "let all lanes of the mask call it at one place, or pass the mask of those "
                       "that do";
        report(warp.block, story);
    }
}

// Looks for lanes that read from a lane that does not execute the shuffle.
void KernelSync::look_at_sources(const ptx::Warp &warp, const ptx::Step &step, uint32_t lanes) {
    if (state_of(warp).confused)
        return;
    const auto *masks = step.offset ? warp.row<uint32_t>(step.rows[9]) : nullptr;
    for (uint32_t left = step.detail ? lanes : 0; left; left &= left - 1) {
        unsigned lane = lowest(left);
        int from = ptx::lane_read_by(warp, step, lane);
        bool named = from < 0 || !masks || masks[lane] & bit(unsigned(from));
        if (from < 0 || (named && lanes & bit(unsigned(from))))
            continue;
        std::string why = !named ? "which is not in its mask " + hexadecimal(masks[lane])
                          : unsigned(from) + warp.number * unsigned(warp_size) >= machine_.threads
                              ? "which the block does not have"
                          : warp.live & bit(unsigned(from)) ? "which does not execute it"
                                                            : "which has ended";
        Story story;
        story.memory = lanes_of_warp;
        story.first = {place_of(warp, step), thread_of(warp, lane)};
        story.middle = "reads the value of lane " + std::to_string(from) + ", " + why;
        story.remedy = "let this lane take part, or read only lanes that do";
        return report(warp.block, story);
    }
}

void KernelSync::arrives(const ptx::Warp &warp, const ptx::Arrival &arrival) {
    look_at_count(warp, arrival);
    const ptx::Code &code = *warp.frame->code;
    if (code.effects[size_t(&arrival.step - code.body.data())].aligned)
        wait_at_barrier(warp, arrival.step, arrival.barrier, arrival.lanes, arrival.waits);
}

void KernelSync::look_at_count(const ptx::Warp &warp, const ptx::Arrival &arrival) {
    unsigned all = whole_warps(machine_.threads);
    unsigned expected = arrival.expected ? arrival.expected : all;
    Done here = {place_of(warp, arrival.step), thread_of(warp, lowest(arrival.lanes))};
    Phase made = {expected, !arrival.expected, here, step_of_kernel(warp, arrival.step)};
    std::optional<Phase> &phase = state_of(warp.block).phases[arrival.barrier];
    bool is_new = !phase;
    if (is_new)
        phase = made;
    Story story;
    story.memory = "barrier " + std::to_string(arrival.barrier);
    story.first = here;
    std::string waits = "waits for " + threads_text(expected);
    if (expected % unsigned(warp_size)) {
        story.middle = waits + ", which is not a multiple of 32";
        story.remedy = "count whole warps";
        return report(warp.block, story);
    }
    if (expected > all) {
        story.middle = waits + ", and the block has " + threads_text(machine_.threads);
        story.remedy = "pass the number of threads that arrive";
        return report(warp.block, story);
    }
    if (!is_new && phase->expected != expected) {
        story.middle = waits + ", and";
        story.second = &phase->first;
        story.end = " waits for " + threads_text(phase->expected) + " at the same barrier";
        story.remedy = "pass the same number of threads at all places of a barrier";
        report(warp.block, story);
    }
}

// Looks at lanes at an aligned barrier. Unless they stay there until it is complete, they are
// forgotten when all lanes of the warp have come.
void KernelSync::wait_at_barrier(const ptx::Warp &warp, const ptx::Step &step, unsigned barrier,
                                 uint32_t lanes, bool stays) {
    Wait &wait = wait_at(warp, step, true, barrier, lanes);
    if (wait.place != place_of(warp, step))
        left_alone(warp, wait, lowest(lanes), place_of(warp, step));
    std::vector<Wait> &waits = state_of(warp).waits;
    if (!stays && !(wait.expected & warp.live & ~wait.lanes))
        waits.erase(waits.begin() + (&wait - waits.data()));
}

void KernelSync::uses_cluster(const ptx::Warp &warp, const ptx::ClusterUse &use) {
    uint32_t &at_cluster = state_of(warp).at_cluster;
    bool arrives = use.kind == ptx::ClusterUse::Kind::Arrives;
    uint32_t wrong = use.lanes & (arrives ? at_cluster : ~at_cluster);
    at_cluster = arrives ? at_cluster | use.lanes : at_cluster & ~use.lanes;
    const ptx::Code &code = *warp.frame->code;
    if (code.effects[size_t(&use.step - code.body.data())].aligned)
        wait_at_barrier(warp, use.step, arrives ? arrivals_at_cluster : ptx::barrier_of_cluster,
                        use.lanes, false);
    if (!wrong || state_of(warp).confused)
        return;
    Story story;
    story.memory = barrier_name(ptx::barrier_of_cluster);
    story.first = {place_of(warp, use.step), thread_of(warp, lowest(wrong))};
    story.middle = arrives ? "arrives a second time, and has not waited in between"
                           : "waits, and has not arrived before";
    story.remedy = "let each thread call barrier.cluster.arrive, then barrier.cluster.wait";
    report(warp.block, story);
}

// Reports the lanes that have ended before they arrived at the barrier.
void KernelSync::completes_cluster(const ptx::Cluster &cluster) {
    for (const ptx::ThreadBlock *block : cluster.blocks())
        for (const auto &warp : block->warps) {
            WarpState &state = state_of(*warp);
            const Wait *wait = find(state, true, arrivals_at_cluster);
            if (!wait)
                continue;
            look_at_ended(*warp, *wait);
            state.waits.erase(state.waits.begin() + (wait - state.waits.data()));
        }
}

void KernelSync::completes(const ptx::ThreadBlock &of, unsigned barrier) {
    Block &block = state_of(of);
    bool reported = false;
    for (size_t i = 0; i < block.warps.size(); i++) {
        std::vector<Wait> &waits = block.warps[i].waits;
        const Wait *wait = find(block.warps[i], true, barrier);
        if (!wait)
            continue;
        look_at_ended(*of.warps[i], *wait);
        reported |= block.warps[i].confused;
        waits.erase(waits.begin() + (wait - waits.data()));
    }
    std::optional<Phase> &phase = block.phases[barrier];
    if (phase->for_all && !reported)
        look_at_ended_warps(of, *phase, barrier);
    phase.reset();
}

// Like look_at_ended(), for warps that have ended instead of arriving at a barrier that is for all
// threads of the block.
void KernelSync::look_at_ended_warps(const ptx::ThreadBlock &block, const Phase &phase,
                                     unsigned barrier) {
    for (const auto &warp : block.warps) {
        const Last &last = state_of(*warp).last(0);
        if (warp->live || !is_behind(phase.step, last, false))
            continue;
        Done second = {last.place, thread_of(*warp, 0)};
        Story story;
        story.memory = "barrier " + std::to_string(barrier);
        story.first = phase.first;
        story.middle = "is for all threads of the block, and one of them goes on without it:";
        story.second = &second;
        story.remedy = "move the barrier out of the branch";
        return report(block, story);
    }
}

// No thread of the block, or of its cluster, can go on. Reports what is wrong inside of a warp, or
// else with a barrier of a block.
void KernelSync::hangs(const ptx::ThreadBlock &block) {
    std::vector<const ptx::ThreadBlock *> blocks = {&block};
    if (block.cluster)
        blocks.assign(block.cluster->blocks().begin(), block.cluster->blocks().end());
    bool found = false;
    for (const ptx::ThreadBlock *each : blocks)
        found |= hangs_in_warps(*each);
    if (found)
        return;
    for (const ptx::ThreadBlock *each : blocks)
        for (unsigned barrier = 0; barrier < ptx::barriers_of_block; barrier++)
            if (each->barriers[barrier].used)
                return hangs_at(*each, barrier);
}

bool KernelSync::hangs_in_warps(const ptx::ThreadBlock &block) {
    bool found = false;
    for (const auto &warp : block.warps)
        found |= state_of(*warp).confused || hangs_in_warp(*warp);
    return found;
}

bool KernelSync::hangs_in_warp(const ptx::Warp &warp) {
    for (const Wait &wait : state_of(warp).waits) {
        uint32_t missing = wait.expected & warp.live & ~wait.lanes;
        for (const ptx::Group &group : warp.waiting()) {
            if (!(group.mask & missing))
                continue;
            // Lanes at a barrier of the block are at the step behind it.
            bool barrier = group.wait == ptx::Group::Wait::Barrier;
            left_alone(warp, wait, lowest(group.mask & missing),
                       place_of(*group.frame->code, *(group.next - barrier)));
            return true;
        }
    }
    return false;
}

void KernelSync::hangs_at(const ptx::ThreadBlock &block, unsigned barrier) {
    const Phase &phase = *state_of(block).phases[barrier];
    unsigned arrived = 0;
    for (uint32_t lanes : block.barriers[barrier].arrived)
        arrived += unsigned(__builtin_popcount(lanes));
    Story story;
    story.memory = "barrier " + std::to_string(barrier);
    story.first = phase.first;
    story.middle = "waits for ever for " + threads_text(phase.expected) + ": " +
                   std::to_string(arrived) + " have come, and no other thread of the block can";
    story.remedy = "pass the number of threads that arrive, or let the others arrive";
    Done second;
    for (const auto &warp : block.warps)
        for (const ptx::Group &group : warp->waiting()) {
            bool elsewhere = group.wait != ptx::Group::Wait::Barrier || group.number != barrier;
            if (!elsewhere || story.second)
                continue;
            bool at_barrier = group.wait == ptx::Group::Wait::Barrier;
            second = {place_of(*group.frame->code, *(group.next - at_barrier)),
                      thread_of(*warp, lowest(group.mask))};
            story.second = &second;
            story.middle += ":";
            story.end = " waits elsewhere";
        }
    report(block, story);
}

void KernelSync::uses_mbarrier(const ptx::Warp &warp, const ptx::MbarrierUse &use) {
    using Kind = ptx::MbarrierUse::Kind;
    Block &block = state_of(warp.block);
    const ptx::Code &code = *warp.frame->code;
    const Effect &effect = code.effects[size_t(&use.step - code.body.data())];
    Done here = {place_of(warp, use.step), thread_of(warp, use.lane)};
    if (use.kind == Kind::Initializes || use.kind == Kind::Invalidates)
        return block.mbarriers.set(use.address, use.kind == Kind::Initializes, here);
    const Mbarriers::State *state = block.mbarriers.find(use.address);
    uintptr_t begin = 0;
    Story story;
    story.memory = shared_variable(machine_, use.address, begin);
    story.start = use.address - begin;
    story.stop = story.start + sizeof(uint64_t);
    story.first = here;
    std::string name = "the mbarrier in " + story.memory;
    if (!state || !state->valid) {
        Done last = state ? state->last : Done();
        story.middle = state ? "uses " + name + ", which is invalid since"
                             : "uses " + name + ", which nothing has initialized";
        story.second = state ? &last : nullptr;
        story.remedy = state ? "invalidate it only after its last use"
                             : "add mbarrier.init, and __syncthreads() after it";
        return report(warp.block, story);
    }
    if (use.kind == Kind::Fails) {
        Done last = state->last;
        story.middle = "changes " + name + " too often: " + use.wrong + ". It was initialized:";
        story.second = &last;
        story.remedy = "initialize it with the number of arrivals of a phase";
        return report(warp.block, story);
    }
    uint64_t word;
    std::memcpy(&word, warp.block.shared.data() + use.address, sizeof word);
    block.mbarriers.look(use.address, ptx::Mbarrier(word).odd_phase);
    tested_[use.lane] = use.address;
    if (use.kind == Kind::Copies)
        block.copies.begin(here, use.address, state->phase);
    else if (effect.kind == Effect::Kind::Arrive && effect.copies)
        block.copies.hand_over(here.thread, use.address, state->phase);
}

} // namespace soft::check
