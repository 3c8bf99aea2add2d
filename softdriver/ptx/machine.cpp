#include "ptx/machine.h"

#include "base/range.h"
#include "ptx/float_mode.h"
#include "ptx/observer.h"
#include "ptx/team.h"
#include "ptx/texture.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

namespace soft::ptx {

namespace {

// The number of steps that a block runs before the next block runs. A block that made no progress
// in its last slice runs fewer steps, because it probably waits for other blocks.
constexpr uint64_t block_slice = 1 << 15, spinning_block_slice = 512;

// The number of steps that a launch runs before other threads help. Creating their machines and
// waking the threads takes about as long as these steps.
constexpr uint64_t steps_alone = 2048;

// The most blocks in a chain, and the fewest chains of a grid whose chains have several blocks.
constexpr uint64_t longest_chain = 16, fewest_chains = 256;

} // namespace

std::string triple(const unsigned index[3]) {
    return "(" + std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " +
           std::to_string(index[2]) + ")";
}

void spread(uint64_t number, const unsigned extents[3], unsigned index[3]) {
    index[0] = unsigned(number % extents[0]);
    index[1] = unsigned(number / extents[0] % extents[1]);
    index[2] = unsigned(number / extents[0] / extents[1]);
}

Machine::Machine(const Launch &what)
    : launch(what), code(*launch.kernel->code), library(*code.library),
      memory(launch, library.sites), random(launch.seed) {
    threads = launch.block[0] * launch.block[1] * launch.block[2];
    blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    shared_bytes = launch.kernel->shared_bytes + launch.shared_bytes;
    if (launch.kernel->uses_reserved_shared) {
        reserved_begin = round_up(shared_bytes, 128);
        shared_bytes = reserved_begin + reserved_shared_bytes;
    }
    shared_room = (shared_bytes + launch.shared_rounding - 1) / launch.shared_rounding *
                  launch.shared_rounding;
    most_resident_ = launch.processors * std::max(1u, std::min(32u, 2048 / threads));
    uint64_t together = launch.kernel->uses_cluster_barrier
                            ? uint64_t{launch.cluster[0]} * launch.cluster[1] * launch.cluster[2]
                            : 1;
    in_chains_ = blocks / together;
    chain_blocks_ = std::clamp(in_chains_ / fewest_chains, uint64_t{1}, longest_chain);
    chains_ = (in_chains_ - 1) / chain_blocks_ + 1;
    first_ = random.below(chains_);
    do
        step_ = random.below(chains_) + 1;
    while (std::gcd(step_, chains_) != 1);
    backwards_ = chain_blocks_ > 1 && random.below(2);
    if (launch.observe)
        observer = launch.observe(*this);
}

Machine::~Machine() = default;

void Observer::run(Warp &warp, const Step &step) {
    const Code &at = *warp.frame->code;
    const Effect &effect = at.effects[size_t(&step - at.body.data())];
    before(warp, step, effect);
    step.run(warp, step);
    after(warp, step, effect);
}

std::vector<std::unique_ptr<Machine>> Machine::split(unsigned parts) {
    std::vector<std::unique_ptr<Machine>> others;
    for (unsigned part = 1; part < parts; part++) {
        others.push_back(std::make_unique<Machine>(launch));
        others.back()->next_chain_ = next_chain_ + part;
        others.back()->parts_ = parts;
        others.back()->random = Random(launch.seed + part);
    }
    parts_ = parts;
    return others;
}

// Makes the next block or cluster resident. Returns false if all blocks have started already.
bool Machine::admit() {
    if (all_started())
        return false;
    if (!chain_left_) {
        auto walked = static_cast<unsigned __int128>(next_chain_) * step_ + first_;
        chain_begin_ = uint64_t(walked % chains_) * chain_blocks_;
        chain_left_ = std::min(chain_blocks_, in_chains_ - chain_begin_);
        next_chain_ += parts_;
    }
    chain_left_--;
    uint64_t number = backwards_ ? chain_begin_ + chain_left_ : chain_begin_++;
    if (launch.kernel->uses_cluster_barrier)
        admit_cluster(number);
    else
        admit_block(number);
    return true;
}

void Machine::admit_block(uint64_t number) {
    if (idle_.empty())
        idle_.push_back(std::make_unique<ThreadBlock>(*this));
    resident_.push_back(std::move(idle_.back()));
    idle_.pop_back();
    started++;
    resident_.back()->start(number);
    if (observer)
        observer->starts(*resident_.back());
}

void Machine::admit_cluster(uint64_t number) {
    const unsigned (&of)[3] = launch.cluster;
    const unsigned clusters[3] = {launch.grid[0] / of[0], launch.grid[1] / of[1],
                                  launch.grid[2] / of[2]};
    unsigned first[3];
    spread(number, clusters, first);
    auto cluster = std::make_shared<Cluster>();
    for (unsigned rank = 0; rank < of[0] * of[1] * of[2]; rank++) {
        unsigned at[3];
        spread(rank, of, at);
        for (int i = 0; i < 3; i++)
            at[i] += first[i] * of[i];
        admit_block(at[0] + uint64_t{launch.grid[0]} * (at[1] + uint64_t{launch.grid[1]} * at[2]));
        resident_.back()->cluster = cluster;
        cluster->start(*resident_.back());
    }
}

// The program may have set the mode of its thread.
Run::State Machine::advance(uint64_t steps) {
    FloatMode before = float_mode();
    set_float_mode(FloatMode::Usual);
    Run::State state = run_blocks(steps);
    set_float_mode(before);
    return state;
}

Run::State Machine::run_blocks(uint64_t steps) {
    memory.drop_segments();
    textures_.clear(); // the program may have destroyed them
    waited = false;
    progress_of_piece_ = progress;
    if (launch.dependents && launch.dependents->allowed)
        release_held();
    while (!failed()) {
        while (resident_.empty() || (launch.cooperative && !all_started()))
            if (!admit()) {
                done = true;
                rest();
                return Run::State::Done;
            }
        if (!steps)
            return Run::State::More;
        if (launch.dependents && !skip_held()) {
            if (hold())
                return Run::State::More;
            continue;
        }
        if (!slice_left_) {
            slice_left_ = resident_[turn_]->spins ? spinning_block_slice : block_slice;
            progress_before_ = progress;
        }
        uint64_t done = resident_[turn_]->run(std::min(steps, slice_left_));
        executed += done;
        steps -= done;
        slice_left_ -= done;
        if (resident_[turn_]->done())
            recycle();
        else if (!slice_left_ || resident_[turn_]->held || resident_[turn_]->stuck)
            end_slice();
        if (executed >= launch.budget)
            fail_budget();
        if (tired()) {
            rest();
            return Run::State::More;
        }
    }
    return Run::State::Failed;
}

void Machine::allow(ThreadBlock &block) {
    if (block.allows)
        return;
    block.allows = true;
    note_order(block);
    allowing_++;
    if (!launch.dependents)
        return;
    block.held = !launch.dependents->allowed;
    progress++;
}

// Notes whether the block allows dependent launches before it has waited for the prerequisite.
void Machine::note_order(const ThreadBlock &block) {
    runs_ahead |=
        launch.prerequisite && std::none_of(block.warps.begin(), block.warps.end(),
                                            [](const auto &warp) { return warp->waited; });
}

// Moves on to a block that is not held until the others allow dependent launches. Returns false if
// there is none.
bool Machine::skip_held() {
    for (size_t i = 0; i < resident_.size(); i++, turn_ = (turn_ + 1) % resident_.size()) {
        if (!resident_[turn_]->held)
            return true;
        slice_left_ = 0;
    }
    return false;
}

// All resident blocks allow dependent launches to begin. Begins the other blocks. If there are
// none, returns true: the dependent launches come first now.
bool Machine::hold() {
    if (resident_.size() < most_resident_ && admit()) {
        turn_ = resident_.size() - 1;
        return false;
    }
    release_held();
    launch.dependents->allowed = allowing_ == blocks;
    return launch.dependents->allowed;
}

void Machine::release_held() {
    for (auto &block : resident_)
        block->held = false;
}

// Returns how many warps of the machine a GPU would run at the same time.
uint64_t Machine::awake_together() const {
    uint64_t resident = std::min<uint64_t>(blocks, most_resident_) / parts_;
    return std::max<uint64_t>(resident, 1) * ((threads + warp_size - 1) / warp_size);
}

// On a GPU, warps sleep at the same time. Here they run one after the other, so each sleep adds
// only its share to the time that the machine sleeps later. The order in which warps run does not
// depend on sleeps, so that a run can be replayed.
void Machine::sleep(uint64_t nanoseconds) {
    sleeps_ += std::min(nanoseconds, longest_sleep) / awake_together();
}

// Sleeps, and counts the sleep as executed steps, so that the limit of steps also ends an endless
// kernel that sleeps.
void Machine::rest() {
    constexpr uint64_t nanoseconds_per_step = 10; // about the time of one step
    if (!sleeps_)
        return;
    std::this_thread::sleep_for(std::chrono::nanoseconds(sleeps_));
    slept += sleeps_;
    executed += sleeps_ / nanoseconds_per_step;
    sleeps_ = 0;
}

void Machine::fail_budget() {
    fail(CUDA_ERROR_LAUNCH_TIMEOUT, "kernel '" + launch.kernel->name + "' did not end within " +
                                        std::to_string(launch.budget) + " warp instructions");
}

void Machine::recycle() {
    if (observer)
        observer->ends(*resident_[turn_]);
    resident_[turn_]->end();
    if (!resident_[turn_]->allows) {
        note_order(*resident_[turn_]);
        allowing_++;
    }
    idle_.push_back(std::move(resident_[turn_]));
    resident_[turn_] = std::move(resident_.back());
    resident_.pop_back();
    turn_ = 0;
    slice_left_ = 0;
    idle_turns_ = 0;
}

// Ends the slice of a block. If no resident block makes progress, admits another block, because the
// resident blocks may be waiting for a block that has not started.
void Machine::end_slice() {
    bool spins = progress == progress_before_;
    resident_[turn_]->spins = spins;
    idle_turns_ = spins ? idle_turns_ + 1 : 0;
    if (idle_turns_ >= resident_.size()) {
        release_held(); // the others may be waiting for a held block
        if (resident_.size() < most_resident_)
            admit();
        idle_turns_ = 0;
    }
    turn_ = (turn_ + 1) % resident_.size();
}

void Machine::thread_index(const Warp &warp, unsigned lane, unsigned index[3]) const {
    spread(warp.number * warp_size + lane, launch.block, index);
}

std::string Machine::where(const Warp &warp, unsigned lane) const {
    unsigned index[3];
    thread_index(warp, lane, index);
    return "thread " + triple(index) + " of block " + triple(warp.block.index);
}

void Machine::fail(CUresult status, const std::string &what) {
    if (!failed())
        fault = {status, what, 0};
}

// Returns the kernel, the function if it is another one, the line and the instruction of a step.
std::string Machine::text_of(const Warp &warp, const Step &step) const {
    const Code &at = *warp.frame->code;
    size_t place = size_t(&step - at.body.data());
    std::string text = "kernel '" + launch.kernel->name + "', ";
    if (&at != &code)
        text += "function '" + at.name + "', ";
    return text + at.where(place) + ": " + at.written[place] + ": ";
}

void Machine::fail(Warp &warp, const Step &step, unsigned lane, CUresult status,
                   const std::string &what, uintptr_t address) {
    warp.yield();
    if (!failed())
        fault = {status, text_of(warp, step) + what + ", " + where(warp, lane), address};
}

void Machine::warn(const Warp &warp, const Step &step, const std::string &what) {
    if (launch.warn && warned_.insert(&step).second)
        launch.warn(text_of(warp, step) + what);
}

const Texture *Machine::find_texture(Warp &warp, const Step &step, unsigned lane, uint64_t handle,
                                     bool surface, bool query) {
    std::shared_ptr<const Texture> &known = textures_[handle];
    std::string why = surface ? "there are no surfaces here" : "there are no textures here";
    if (!known && launch.find_texture)
        known = launch.find_texture(handle, surface, why);
    if (!known && query && launch.find_texture)
        known = launch.find_texture(handle, true, why);
    if (known && (known->surface == surface || (query && known->surface)))
        return known.get();
    if (known)
        why = surface ? "the handle is one of a texture object"
                      : "the handle is one of a surface object";
    fail(warp, step, lane, CUDA_ERROR_ILLEGAL_ADDRESS, why);
    return nullptr;
}

// The rest of this file defines the class Run of run.h.

Run::Run(Launch launch) : launch_(std::move(launch)) {
    machines_.push_back(std::make_unique<Machine>(launch_));
    if (launch_.has_independent_blocks())
        threads_ = launch_.threads;
}

Run::~Run() = default;

Run::State Run::advance(uint64_t instructions) {
    if (threads_ <= 1)
        machines_[0]->advance(instructions);
    else if (begin(instructions))
        run_together(unsigned(machines_.size()), [&](unsigned part) {
            if (!machines_[part]->done)
                machines_[part]->advance(instructions);
        });
    return state();
}

// Runs the first steps in this thread. A small launch then needs no other machine. Returns whether
// this piece goes on, and subtracts the instructions of the first steps from `instructions`.
bool Run::begin(uint64_t &instructions) {
    if (machines_.size() > 1)
        return true;
    uint64_t part = std::min(instructions, steps_alone);
    machines_[0]->advance(part);
    instructions -= part;
    if (executed() < steps_alone || state() != State::More)
        return false;
    // Each machine must have enough to do to be worth creating. Assume that the blocks that have
    // not started take as long as the others.
    uint64_t started = machines_[0]->started, left = machines_[0]->blocks - started;
    double steps = double(executed()) * double(left) / double(started);
    uint64_t useful = std::min(left, uint64_t(steps / double(2 * steps_alone))) + 1;
    threads_ = unsigned(std::min(uint64_t{threads_}, useful));
    for (auto &machine : machines_[0]->split(threads_))
        machines_.push_back(std::move(machine));
    return instructions;
}

// If several machines have failed, the fault of the first one in machines_ is reported, so that
// repeated runs report the same fault.
Run::State Run::state() {
    bool done = true;
    for (auto &machine : machines_) {
        if (machine->failed() && !failed_)
            failed_ = machine.get();
        done = done && machine->done;
    }
    if (!failed_ && !done && executed() >= launch_.budget) {
        machines_[0]->fail_budget();
        failed_ = machines_[0].get();
    }
    if (!failed_ && !done)
        return State::More;
    end_observers();
    return failed_ ? State::Failed : State::Done;
}

void Run::end_late(uint64_t milliseconds) {
    machines_[0]->fail(CUDA_ERROR_LAUNCH_TIMEOUT, "kernel '" + launch_.kernel->name +
                                                      "' did not end within " +
                                                      std::to_string(milliseconds) + " ms");
    state();
}

void Run::end_observers() {
    if (!launch_.observe || observers_ended_)
        return;
    observers_ended_ = true;
    Observer &first = *machines_[0]->observer;
    for (size_t i = 1; i < machines_.size(); i++)
        first.joins(*machines_[i]->observer);
    first.ends_launch();
}

const Fault &Run::fault() const { return failed_ ? failed_->fault : machines_[0]->fault; }

uint64_t Run::executed() const {
    uint64_t sum = 0;
    for (auto &machine : machines_)
        sum += machine->executed;
    return sum;
}

bool Run::waits() const { return machines_.front()->waits(); }

bool Run::runs_ahead() const {
    return std::any_of(machines_.begin(), machines_.end(),
                       [](const auto &machine) { return machine->runs_ahead; });
}

std::vector<Accessed> Run::accessed(int use, bool late) const {
    std::vector<const AddressSet *> all;
    for (auto &machine : machines_)
        all.push_back(&machine->memory.accessed(Use(use), late));
    return ranges_of(all);
}

std::vector<Accessed> Run::reads(bool late) const { return accessed(int(Use::Read), late); }
std::vector<Accessed> Run::writes(bool late) const { return accessed(int(Use::Write), late); }
std::vector<Accessed> Run::atomics(bool late) const { return accessed(int(Use::Atomic), late); }

} // namespace soft::ptx
