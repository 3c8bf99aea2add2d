#include "work/steps.h"
#include "api/call.h"

#include "api/state.h"
#include "base/caller.h"

#include <algorithm>

namespace soft {
namespace {

using explore::Step;

// Notes these ranges if the driver cannot see how the host uses their memory (see
// memory/host_uses.h). A client that labels its operations refuses such uses of their memory
// itself.
void note_unseen(const Operation &operation, const std::vector<Range> &used) {
    bool watching = HostUses::watching();
    if (!watching && operation.label.known())
        return;
    for (const Range &range : used) {
        const Allocation *memory = find_reserved(range.begin, 1);
        if (!memory || memory->on_device() || (watching && state().host_uses.sees(*memory)))
            continue;
        state().chooser.limit(watching ? explore::Limit::UnseenUse
                                       : explore::Limit::UnseenByCudadrv);
    }
}

std::string place_of(const Stream &stream) {
    if (stream.kind == StreamKind::Legacy)
        return "the legacy stream";
    if (stream.kind == StreamKind::PerThread)
        return "a per-thread stream";
    return stream.handle ? "stream " + std::to_string(stream.id) : "an internal stream";
}

// What a step's operation is, for clients that have no words for it; "" if its line is not known.
std::string words_for(const Step &step, const std::string &line) {
    return line.empty() ? "" : step.name + " on " + step.stream + ", queued at " + line;
}

} // namespace

void Steps::start(const First &first) {
    unplaced_.clear();
    unplaced_looks_.clear();
    first_ = first;
    looks_ = 0;
    freed_.clear();
    slots_.clear();
    known_ = {};
}

explore::Actor Steps::actor_of(Stream &stream) const {
    explore::Chooser &chooser = state().chooser;
    if (stream.run != chooser.run_number()) {
        stream.run = chooser.run_number();
        stream.early_actors.clear();
        stream.actor = chooser.new_actor();
    }
    return stream.actor;
}

explore::Actor Steps::actor_of(const Operation &operation) const {
    Stream &stream = *operation.stream;
    explore::Actor actor = actor_of(stream);
    if (!operation.chain)
        return actor;
    while (stream.early_actors.size() < operation.chain)
        stream.early_actors.push_back(state().chooser.new_actor());
    return stream.early_actors[operation.chain - 1];
}

size_t Steps::next() const { return state().chooser.run().steps.size() + 1; }

void Steps::submitted(const OperationPtr &operation) {
    actor_of(*operation);
    operation->run = state().chooser.run_number();
    operation->behind = looks_;
    if (places())
        unplaced_.push_back(operation);
}

// Returns whether the driver itself looks for the lines of the program.
bool Steps::places() const { return !state().words.operation && !in_callback; }

void Steps::place(const std::string &line) {
    explore::Chooser &chooser = state().chooser;
    auto here = [&](size_t step) { return !line.empty() && step < chooser.run().steps.size(); };
    for (const OperationPtr &operation : std::exchange(unplaced_, {})) {
        operation->place = line;
        if (in_run(*operation) && operation->step && here(operation->step - 1))
            chooser.name(operation->step - 1,
                         words_for(chooser.run().steps[operation->step - 1], line));
    }
    for (size_t look : std::exchange(unplaced_looks_, {}))
        if (here(look))
            chooser.name(look, chooser.run().steps[look].what + " at " + line);
}

void place_new_steps(Lock &lock) {
    if (!state().steps.has_unplaced())
        return;
    lock.unlock();
    std::string line = python_line(true);
    acquire(lock);
    state().steps.place(line);
}

bool Steps::knows(const Operation &operation) const {
    return operation.mark.track && known_.at(operation.mark.track->slot) >= operation.mark.tick;
}

void Steps::used(const Range &page, bool writes, const std::string &words) {
    Step step;
    step.name = writes ? "write of memory" : "read of memory";
    step.what = words;
    add(writes ? step.touched.writes : step.touched.reads, {page});
    look(std::move(step));
}

bool Steps::in_run(const Operation &operation) const {
    return operation.run == state().chooser.run_number();
}

// Returns the number of an object that the run has made, or a greater number for an older one.
uint64_t Steps::relative(uint64_t number, uint64_t first) const {
    constexpr uint64_t of_earlier_runs = uint64_t(1) << 40;
    return number >= first ? number - first : of_earlier_runs + number;
}

Range Steps::end_of(const Operation &operation) const {
    return explore::mark_of_end(relative(operation.number, first_.operation));
}

// Returns the range with an address that is the same in each run: memory that the run has allocated
// is named by the number of the allocation. Marks memory for which there is no such address.
Range Steps::named(const Range &range) const {
    constexpr uintptr_t of_run = uintptr_t(1) << 62;
    constexpr int longest = 36;
    const Range unknown{range.begin + explore::of_program, range.bytes, range.pitch, range.rows};
    uintptr_t begin;
    uint64_t number;
    if (const Allocation *memory = find_reserved(range.begin, 1)) {
        begin = memory->begin;
        number = memory->number;
    } else {
        auto next = freed_.upper_bound(range.begin);
        if (next == freed_.begin())
            return unknown;
        const auto &[place, freed] = *std::prev(next);
        if (range.begin >= place + freed.first)
            return unknown;
        begin = place;
        number = freed.second;
    }
    if (number < first_.allocation)
        return range;
    Range found = range;
    found.begin = of_run + ((number - first_.allocation) << longest) + (range.begin - begin);
    return found;
}

void Steps::removed(const Allocation &allocation) {
    freed_[allocation.begin] = {allocation.bytes, allocation.number};
}

void Steps::add(std::vector<Range> &all, const std::vector<Range> &more) const {
    for (const Range &range : more)
        all.push_back(named(range));
}

void Steps::add_ordered(List &after, const RaceClock &clock) const {
    for (const auto &[slot, of] : slots_) {
        auto later =
            std::upper_bound(of.steps.begin(), of.steps.end(), clock.at(slot),
                             [](uint64_t tick, const auto &entry) { return tick < entry.first; });
        if (later != of.steps.begin())
            after.push_back(std::prev(later)->second);
    }
}

// Adds the earlier steps after which the program has ordered the operation.
void Steps::add_order(List &after, const Operation &operation) const {
    if (in_run(operation) && operation.behind)
        after.push_back(operation.behind - 1);
    bool early = operation.chain && !operation.has_waited;
    // Its predecessor has let it begin, or has ended.
    if (early) {
        const Operation &kernel = *operation.predecessor;
        if (size_t step = kernel.first_pause ? kernel.first_pause : kernel.step)
            after.push_back(step - 1);
    }
    const RaceMark &mark = early && operation.early ? operation.early->mark : operation.mark;
    if (mark.before)
        add_ordered(after, *mark.before);
    // The race detector does not see the parts of an operation.
    for (const OperationPtr &wait : operation.waits)
        if (!wait->mark.track && in_run(*wait) && wait->step)
            after.push_back(wait->step - 1);
}

std::string Steps::describe(Lock &lock, const Operation &operation) const {
    Step step;
    step.name = race_name(operation);
    step.stream = place_of(*operation.stream);
    std::string words = words_for(step, operation.place);
    RaceLabel label = operation.label;
    cudadrvSoftWords client = state().words;
    lock.unlock();
    name_operation(client, label, words);
    acquire(lock);
    return words.empty() ? step.name + " on " + step.stream : words;
}

explore::Step Steps::step_of(const Operation &operation) const {
    Step step;
    step.actor = actor_of(operation);
    step.name = race_name(operation);
    step.stream = place_of(*operation.stream);
    step.label = operation.label;
    step.what = words_for(step, operation.place);
    step.waits_for_value = operation.condition && operation.synchronizes;
    add_order(step.after, operation);
    return step;
}

void Steps::add_outcome(explore::Footprint &touched, const Operation &operation,
                        const Outcome &outcome) const {
    auto condition = [&](uint64_t number) {
        return explore::mark_of_condition(relative(number, first_.condition));
    };
    for (uint64_t number : outcome.conditions_read)
        touched.reads.push_back(condition(number));
    for (uint64_t number : outcome.conditions_set)
        touched.writes.push_back(condition(number));
    if (outcome.prints)
        touched.writes.push_back(explore::mark_of_output);
    if (outcome.allocates)
        touched.writes.push_back(explore::mark_of_heap);
    if (outcome.in_parts)
        return;
    for (const auto *used : {&outcome.reads, &outcome.writes, &outcome.updates})
        note_unseen(operation, *used);
    add(touched.reads, outcome.reads);
    add(touched.writes, outcome.writes);
    add(touched.writes, outcome.updates);
}

void Steps::add_early(explore::Footprint &touched, const Outcome &outcome) const {
    add(touched.reads, outcome.early_reads);
    add(touched.writes, outcome.early_writes);
    add(touched.writes, outcome.early_updates);
}

void Steps::paused(Operation &operation) {
    Step step = step_of(operation);
    const Device &device = *operation.stream->owner->device;
    step.touched.reads.push_back(explore::mark_of_device(device.ordinal));
    Outcome outcome = operation.pieces->so_far();
    add_outcome(step.touched, operation, outcome);
    add_early(step.touched, outcome);
    operation.step = state().chooser.made(std::move(step)) + 1;
    if (operation.pieces->lets_next_begin() && !operation.let_next_begin)
        operation.first_pause = operation.step;
}

void Steps::ran(Operation &operation, const Outcome *outcome) {
    Step step = step_of(operation);
    explore::Footprint &touched = step.touched;
    const Range device = explore::mark_of_device(operation.stream->owner->device->ordinal);
    bool fails = outcome && outcome->status;
    (fails ? touched.writes : touched.reads).push_back(device);
    touched.writes.push_back(end_of(operation));
    if (operation.on_worker) {
        touched.writes.push_back(explore::mark_of_host);
        add(touched.reads, state().host_uses.reads_of_function());
        add(touched.writes, state().host_uses.writes_of_function());
    }
    Outcome foreseen;
    foreseen.conditions_set = operation.conditions_set;
    if (!outcome) {
        foreseen.reads = operation.reads;
        foreseen.writes = operation.writes;
        foreseen.updates = operation.updates;
    }
    add_outcome(touched, operation, foreseen);
    if (outcome)
        add_outcome(touched, operation, *outcome);
    // What a kernel of a chain used before it waited belongs to an earlier step.
    if (outcome && !operation.chain)
        add_early(touched, *outcome);
    made(operation, std::move(step));
}

void Steps::made(Operation &operation, Step step) {
    size_t index = state().chooser.made(std::move(step));
    operation.step = index + 1;
    if (operation.mark.track)
        slots_[operation.mark.track->slot].steps.emplace_back(operation.mark.tick, index);
}

void Steps::dropped(std::vector<OperationPtr> operations) {
    std::sort(operations.begin(), operations.end(),
              [](auto &one, auto &other) { return one->number < other->number; });
    for (const OperationPtr &operation : operations) {
        if (operation->step && !operation->pieces)
            continue; // the one that has failed
        Step step = step_of(*operation);
        const Device &device = *operation->stream->owner->device;
        step.touched.reads.push_back(explore::mark_of_device(device.ordinal));
        if (step.waits_for_value)
            add(step.touched.reads, operation->reads);
        made(*operation, std::move(step));
    }
}

void Steps::left(Operation &operation) {
    if (!in_run(operation) || operation.runs_long) // a long kernel has its step
        return;
    Outcome unknown; // of a kernel: it may use anything, as an error does
    unknown.status = CUDA_ERROR_UNKNOWN;
    ran(operation, operation.pieces ? &unknown : nullptr);
}

void Steps::learned(const RaceMark &operation, bool itself) {
    if (!operation.certain())
        return;
    known_.join(*operation.before);
    known_.raise(operation.track->slot, operation.tick - !itself);
}

void Steps::look(Step step) {
    step.touched.reads.push_back(explore::mark_of_host);
    add_ordered(step.after, known_);
    size_t index = state().chooser.made(std::move(step));
    looks_ = index + 1;
    // Finding the line takes longer than many runs, so not all searches look for it.
    bool placed = places() || ((!state().planned || state().places_looks) && !in_callback);
    if (in_call && placed && !state().chooser.run().stopped)
        unplaced_looks_.push_back(index);
}

void Steps::waited(const std::vector<OperationPtr> &operations) {
    Step step;
    step.name = info(thread_state().function).symbol;
    step.what = "the host has waited";
    for (const OperationPtr &operation : operations)
        if (in_run(*operation) && operation->step)
            step.after.push_back(operation->step - 1);
    look(std::move(step));
}

void Steps::asked(const std::vector<OperationPtr> &operations) {
    Step step;
    step.name = info(thread_state().function).symbol;
    step.what = "the host has asked";
    for (const OperationPtr &operation : operations)
        step.touched.reads.push_back(end_of(*operation));
    look(std::move(step));
}

} // namespace soft
