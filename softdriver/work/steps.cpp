#include "work/steps.h"
#include "api/call.h"

#include "api/state.h"

#include <algorithm>

namespace soft {
namespace {

using explore::Step;

// Notes memory that the operation writes and that the host can read without a call. Only cudadrv is
// known to refuse such reads while the memory is in use.
void note_early_reads(const std::vector<Range> &writes) {
    if (state().words.operation)
        return;
    for (const Range &range : writes) {
        const Allocation *memory = find_reserved(range.begin, 1);
        if (memory && !memory->on_device())
            state().chooser.limit("early reads of page-locked or managed memory by the host are "
                                  "not seen");
    }
}

std::string place_of(const Stream &stream) {
    if (stream.kind == StreamKind::Legacy)
        return "the legacy stream";
    if (stream.kind == StreamKind::PerThread)
        return "a per-thread stream";
    return stream.handle ? "stream " + std::to_string(stream.id) : "a branch of a graph";
}

} // namespace

void Steps::start(uint64_t next_operation, uint64_t next_allocation) {
    first_operation_ = next_operation;
    first_allocation_ = next_allocation;
    looks_ = 0;
    freed_.clear();
    slots_.clear();
}

explore::Actor Steps::actor_of(Stream &stream) const {
    explore::Chooser &chooser = state().chooser;
    if (stream.run != chooser.run_number()) {
        stream.run = chooser.run_number();
        stream.actor = chooser.new_actor();
    }
    return stream.actor;
}

void Steps::submitted(Operation &operation) const {
    actor_of(*operation.stream);
    operation.run = state().chooser.run_number();
    operation.behind = looks_;
}

bool Steps::in_run(const Operation &operation) const {
    return operation.run == state().chooser.run_number();
}

Range Steps::end_of(const Operation &operation) const {
    constexpr uint64_t of_earlier_runs = uint64_t(1) << 40;
    return explore::mark_of_end(in_run(operation) ? operation.number - first_operation_
                                                  : of_earlier_runs + operation.number);
}

// Returns the range with an address that is the same in each run: memory that the run has allocated
// is named by the number of the allocation.
Range Steps::named(const Range &range) const {
    constexpr uintptr_t of_run = uintptr_t(1) << 62;
    constexpr int longest = 36;
    uintptr_t begin;
    uint64_t number;
    if (const Allocation *memory = find_reserved(range.begin, 1)) {
        begin = memory->begin;
        number = memory->number;
    } else {
        auto next = freed_.upper_bound(range.begin);
        if (next == freed_.begin())
            return range;
        const auto &[place, freed] = *std::prev(next);
        if (range.begin >= place + freed.first)
            return range;
        begin = place;
        number = freed.second;
    }
    if (number < first_allocation_)
        return range;
    Range found = range;
    found.begin = of_run + ((number - first_allocation_) << longest) + (range.begin - begin);
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

void Steps::ran(Operation &operation, const Outcome *outcome) {
    explore::Chooser &chooser = state().chooser;
    Stream &stream = *operation.stream;
    Step step;
    step.actor = actor_of(stream);
    step.name = race_name(operation);
    step.stream = place_of(stream);
    step.label = operation.label;
    explore::Footprint &touched = step.touched;
    const Range device = explore::mark_of_device(stream.owner->device->ordinal);
    bool fails = outcome && outcome->status;
    (fails ? touched.writes : touched.reads).push_back(device);
    touched.writes.push_back(end_of(operation));
    if (operation.on_worker)
        touched.writes.push_back(explore::mark_of_host);
    for (const auto *writes : {&operation.writes, &operation.updates})
        note_early_reads(*writes);
    if (outcome) {
        note_early_reads(outcome->writes);
        for (const auto *reads : {&outcome->reads, &outcome->early_reads})
            add(touched.reads, *reads);
        for (const auto *writes :
             {&outcome->writes, &outcome->updates, &outcome->early_writes, &outcome->early_updates})
            add(touched.writes, *writes);
    } else {
        add(touched.reads, operation.reads);
        add(touched.writes, operation.writes);
        add(touched.writes, operation.updates);
    }
    if (in_run(operation) && operation.behind)
        step.after.push_back(operation.behind - 1);
    if (operation.mark.before)
        add_ordered(step.after, *operation.mark.before);
    size_t index = chooser.made(std::move(step));
    operation.step = index + 1;
    if (operation.mark.track)
        slots_[operation.mark.track->slot].steps.emplace_back(operation.mark.tick, index);
}

void Steps::look(Step step) {
    step.touched.reads.push_back(explore::mark_of_host);
    add_ordered(step.after, *state().races.host_clock());
    looks_ = state().chooser.made(std::move(step)) + 1;
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
    for (const OperationPtr &operation : operations)
        step.touched.reads.push_back(end_of(*operation));
    look(std::move(step));
}

} // namespace soft
