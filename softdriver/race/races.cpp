#include "race/races.h"
#include "api/call.h"

#include "api/state.h"
#include "race/race_text.h"

namespace soft {
namespace {

// The name of the host in a RaceKey: a write of the host is not an operation and has no name.
constexpr const char *host_write = "the host";

constexpr size_t max_deferred = 20000;

// Returns the name of an operation in a RaceKey. The first number of the client's label makes it
// more specific.
std::string key_of(const Operation &operation) {
    return race_name(operation) + " " + std::to_string(operation.label.numbers[0]);
}

bool on() { return state().settings.races != RaceMode::Off; }

// Returns true if the client has names for operations or memory.
bool asks() { return state().words.describe_operation || state().words.describe_memory; }

template <class Visit> void each_range(const Operation &operation, Visit visit) {
    for (const Range &range : operation.reads)
        visit(range, RaceUse::Read);
    for (const Range &range : operation.writes)
        visit(range, RaceUse::Write);
    for (const Range &range : operation.updates)
        visit(range, RaceUse::Update);
}

bool touches(const Operation &operation, const Range &bytes) {
    bool found = false;
    each_range(operation, [&](const Range &range, RaceUse) { found |= range.overlaps(bytes); });
    return found;
}

// Removes an operation from a list, which is short.
void remove_from(std::vector<OperationPtr> &list, const OperationPtr &operation) {
    list.erase(std::remove(list.begin(), list.end(), operation), list.end());
}

} // namespace

Races::Races()
    : order_([this](const OperationPtr &operation) { check(operation); },
             [this](const RaceOrder::Visit &visit) {
                 for (const Deferred &deferred : deferred_)
                     if (deferred.operation)
                         visit(*deferred.operation);
             }),
      host_writes_([this](const Operation &operation, const RaceShadow &memory, const Range &range,
                          RaceUse use) {
          list.add({key_of(operation), host_write, memory.id}, state().settings.races, asks(),
                   [&] { return race_with_host_write(memory, operation, range, use); });
      }) {}

RaceShadowPtr Races::shadow_of(const Range &range) {
    Allocation *allocation = find_reserved(range.begin, range.end() - range.begin);
    if (!allocation && just_removed_ && just_removed_->holds(range))
        return just_removed_;
    if (!allocation) {
        // Only freed device memory keeps its shadow. Freed host memory is unmapped, so its address
        // may belong to other memory of the program by now.
        Freed::EntryPtr freed = state().freed.find(range.begin);
        bool known = freed && freed->shadow && !freed->shadow->host_visible();
        return known && freed->shadow->holds(range) ? freed->shadow : nullptr;
    }
    if (!allocation->shadow) {
        allocation->shadow = std::make_shared<RaceShadow>(*allocation);
        allocation->shadow->ignored = allocation->device->sticky != CUDA_SUCCESS;
    }
    return allocation->shadow;
}

Races::Shadows Races::shadows_of(const Operation &operation) {
    Shadows shadows;
    each_range(operation,
               [&](const Range &range, RaceUse) { shadows.push_back(shadow_of(range)); });
    return shadows;
}

void Races::submitted(Stream &stream, const OperationPtr &operation) {
    const cudadrvSoftWords &words = state().words;
    bool labelled = on() || operation->kernel; // the error of a kernel tells of its launch
    if (labelled && stream.tag && words.operation &&
        !words.operation(stream.tag, operation->label.numbers))
        operation->label = RaceLabel();
    if (!on())
        return;
    operation->function = thread_state().function;
    if (operation->early && !order_.place_early(stream, operation))
        operation->early = nullptr;
    order_.place(stream, operation);
    bool touches = !operation->reads.empty() || !operation->writes.empty();
    if (touches && !operation->mark.certain())
        kept_.emplace(operation.get(), shadows_of(*operation));
    just_removed_ = nullptr;
}

void Races::passed(Stream &stream, const OperationPtr &earlier) {
    if (!on())
        return;
    auto nothing = std::make_shared<Operation>();
    nothing->progress = Progress::Done; // no operation may wait for `nothing`, which is in no queue
    nothing->waits.push_back(earlier);
    order_.place(stream, nothing);
    nothing->waits.clear();
}

void Races::context_waits(const Context &context, const OperationPtr &earlier) {
    if (on())
        order_.add_gate(context, earlier);
}

void Races::ended(const Context &context) { order_.remove_gates(context); }

// Called when the place of an operation in the order has become certain. Checks the operation for
// races, or defers the check.
void Races::check(const OperationPtr &operation) {
    if (operation->on_worker)
        functions_.push_back(operation);
    bool touches = !operation->reads.empty() || !operation->writes.empty();
    if (!touches && !operation->unforeseen)
        return;
    auto kept = kept_.find(operation.get());
    Shadows shadows = kept == kept_.end() ? shadows_of(*operation) : std::move(kept->second);
    if (kept != kept_.end())
        kept_.erase(kept);
    if (operation->synchronizes) {
        use_words(operation, shadows);
        return;
    }
    // A host function that is ordered before the operation may still write the memory without a
    // race. In this case do not watch the memory yet.
    if (behind_host_function(*operation))
        unwatched_.insert(operation.get());
    else
        watch(operation, shadows);
    if (deferred_.empty() && !operation->unforeseen) {
        judge(operation, shadows, settled());
        return;
    }
    deferred_.push_back({operation, std::move(shadows), order_.settled()});
    judge_deferred();
}

void Races::use_words(const OperationPtr &operation, const Shadows &shadows) {
    auto shadow = shadows.begin();
    each_range(*operation, [&](const Range &range, RaceUse) {
        if (*shadow && !(*shadow)->ignored) {
            (*shadow)->use_word(operation, settled());
            host_writes_.remove(range);
        }
        shadow++;
    });
}

void Races::judge(const OperationPtr &operation, const Shadows &shadows,
                  const RaceSettled &settled) {
    auto shadow = shadows.begin();
    each_range(*operation, [&](const Range &range, RaceUse use) {
        if (*shadow && !(*shadow)->ignored)
            judge_range(operation, *shadow, range, use, settled);
        shadow++;
    });
}

void Races::judge_range(const OperationPtr &operation, const RaceShadowPtr &shadow,
                        const Range &range, RaceUse use, const RaceSettled &settled) {
    for (const RaceConflict &earlier : shadow->access(operation, range, use, settled)) {
        RaceKey key{key_of(*operation), key_of(*earlier.operation), shadow->id};
        list.add(key, state().settings.races, asks(),
                 [&] { return race_of_operations(*shadow, *operation, range, use, earlier); });
    }
}

// Checks deferred work for races, in order of submission, up to the first kernel whose ranges are
// unknown. If `max_deferred` entries are waiting, treats this kernel as if it used no memory.
void Races::judge_deferred() {
    while (!deferred_.empty()) {
        Deferred &first = deferred_.front();
        bool waits = first.operation && first.operation->unforeseen;
        if (waits && deferred_.size() < max_deferred)
            return;
        Deferred next = std::move(first);
        deferred_.pop_front();
        RaceSettled settled{next.settled.get()};
        if (next.operation && !waits)
            judge(next.operation, next.shadows, settled);
        else if (!next.operation && !next.shadows.front()->ignored)
            judge_free(*next.shadows.front(), next,
                       next.shadows.front()->unsettled(settled, next.freed));
    }
}

void Races::comes_to_use(const OperationPtr &operation, const Allocation &allocation) {
    if (!on() || !operation->mark.track || !allocation.shadow || !allocation.shadow->host_visible())
        return;
    host_writes_.started(operation);
    if (order_.anybody_waits())
        order_.before_write(*operation);
}

bool Races::recording() const { return on(); }

void Races::known(const OperationPtr &operation, Outcome &outcome) {
    if (operation->early) {
        Outcome early;
        early.reads = std::move(outcome.early_reads);
        early.writes = std::move(outcome.early_writes);
        early.updates = std::move(outcome.early_updates);
        if (outcome.runs_ahead && operation->early->before_ahead)
            operation->early->mark.before = operation->early->before_ahead;
        known(operation->early, early);
        operation->early = nullptr;
    } else {
        auto add = [](std::vector<Range> &to, const std::vector<Range> &from) {
            to.insert(to.end(), from.begin(), from.end());
        };
        add(outcome.reads, outcome.early_reads);
        add(outcome.writes, outcome.early_writes);
        add(outcome.updates, outcome.early_updates);
    }
    operation->reads = std::move(outcome.reads);
    operation->writes = std::move(outcome.writes);
    operation->updates = std::move(outcome.updates);
    operation->unforeseen = false;
    for (Deferred &deferred : deferred_)
        if (deferred.operation == operation) {
            deferred.shadows = shadows_of(*operation);
            watch(operation, deferred.shadows);
        }
    judge_deferred();
}

bool Races::behind_host_function(const Operation &operation) const {
    return std::any_of(functions_.begin(), functions_.end(), [&](const OperationPtr &function) {
        return operation.mark.after(function->mark);
    });
}

void Races::watch(const OperationPtr &operation, const Shadows &shadows) {
    auto shadow = shadows.begin();
    each_range(*operation, [&](const Range &range, RaceUse use) {
        bool visible =
            *shadow && !(*shadow)->ignored && !(*shadow)->removed && (*shadow)->host_visible();
        // A write of another process would look like one of the host.
        if (visible && !(*shadow)->of_others && use != RaceUse::Update)
            host_writes_.add(operation, *shadow, range, use);
        shadow++;
    });
}

void Races::started(const OperationPtr &operation) {
    if (!operation->mark.track || !on())
        return;
    if (operation->synchronizes && operation->condition)
        order_.arrived(*operation);
    // The host can learn that earlier work is done when a host function runs, or when a stream
    // writes a value to memory that the host can read.
    bool tells = operation->on_worker;
    if (operation->synchronizes)
        for (const Range &word : operation->writes)
            if (RaceShadowPtr shadow = shadow_of(word)) {
                shadow->release_word(word, operation->mark);
                tells |= shadow->host_visible();
            }
    if (tells)
        know({operation});
    if (operation->reads.empty() && operation->writes.empty())
        return;
    if (unwatched_.erase(operation.get()))
        watch(operation, shadows_of(*operation));
    if (!operation->synchronizes)
        host_writes_.started(operation);
    if (order_.anybody_waits())
        order_.before_write(*operation);
}

void Races::ended(const OperationPtr &operation) {
    if (!operation->mark.track)
        return;
    host_writes_.ended(*operation);
    if (operation->on_worker)
        remove_from(functions_, operation);
    if (operation->writes.empty() || !on())
        return;
    if (order_.anybody_waits())
        order_.after_write(*operation);
}

void Races::dropped(const OperationPtr &operation) {
    if (operation->early)
        dropped(std::exchange(operation->early, nullptr));
    if (operation->unforeseen) {
        Outcome nothing;
        known(operation, nothing);
    }
    kept_.erase(operation.get());
    unwatched_.erase(operation.get());
    host_writes_.remove(*operation);
    remove_from(functions_, operation);
    order_.abandon(*operation);
}

std::vector<OperationPtr> Races::tails(const Stream &stream) const {
    return on() ? order_.tails(stream) : std::vector<OperationPtr>();
}

std::vector<OperationPtr> Races::tails(const Context &context) const {
    return on() ? order_.tails(context) : std::vector<OperationPtr>();
}

void Races::learn(const std::vector<OperationPtr> &operations) {
    if (!on())
        return;
    if (state().chooser.replays())
        for (const OperationPtr &operation : operations)
            state().steps.learned(operation->mark, true);
    state().host_uses.learned();
    know(operations);
}

void Races::know(const std::vector<OperationPtr> &operations) {
    look();
    if (order_.learn(operations) && !host_writes_.empty())
        host_writes_.learned(
            [this](const Operation &operation) { return order_.known(operation); });
}

void Races::learn_before(const OperationPtr &operation) {
    if (!on() || !operation)
        return;
    if (state().chooser.replays())
        state().steps.learned(operation->mark, false);
    look();
    if (order_.learn_before(*operation) && !host_writes_.empty())
        host_writes_.learned([this](const Operation &known) { return order_.known(known); });
}

void Races::freed_by_host(const Allocation &allocation) {
    freed_by_host(allocation, {allocation.begin, allocation.bytes});
}

void Races::freed_by_host(const Allocation &allocation, const Range &freed) {
    if (!on())
        return;
    if (!deferred_.empty())
        // Create the shadow even if it has no accesses yet, because a deferred kernel may use the
        // memory.
        shadow_of({allocation.begin, allocation.bytes});
    if (!allocation.shadow || allocation.shadow->ignored)
        return;
    look();
    const RaceShadow &shadow = *allocation.shadow;
    Deferred free{nullptr,
                  {allocation.shadow},
                  order_.host_clock(),
                  thread_state().function,
                  state().next_operation,
                  freed};
    auto uses = [&](const OperationPtr &waiting) {
        if (!touches(*waiting, freed))
            return false;
        auto kept = kept_.find(waiting.get());
        return kept != kept_.end() && std::find(kept->second.begin(), kept->second.end(),
                                                allocation.shadow) != kept->second.end();
    };
    std::vector<RaceConflict> users;
    order_.each_waiting([&](const OperationPtr &waiting) {
        if (uses(waiting))
            users.push_back(
                {waiting, freed, waiting->writes.empty() ? RaceUse::Read : RaceUse::Write});
    });
    if (deferred_.empty()) {
        auto unsettled = shadow.unsettled({free.settled.get()}, freed);
        users.insert(users.begin(), unsettled.begin(), unsettled.end());
    }
    judge_free(shadow, free, std::move(users));
    if (!deferred_.empty())
        deferred_.push_back(std::move(free));
}

void Races::judge_free(const RaceShadow &shadow, const Deferred &free,
                       std::vector<RaceConflict> users) {
    for (const RaceConflict &user : users) {
        // The allocation of stream-ordered memory writes the memory, but does not race with its
        // free.
        Function function = user.operation->function;
        if (function == Function::cuMemAllocAsync || function == Function::cuMemAllocFromPoolAsync)
            continue;
        RaceKey key{race_name(free.free), key_of(*user.operation), shadow.id};
        list.add(key, state().settings.races, asks(),
                 [&] { return race_with_free(shadow, free.free, free.next_operation, user); });
    }
}

void Races::removed(const Allocation &allocation) {
    if (state().chooser.replays())
        state().steps.removed(allocation);
    if (on() && !deferred_.empty())
        shadow_of({allocation.begin, allocation.bytes});
    if (!allocation.shadow)
        return;
    host_writes_.remove(*allocation.shadow);
    allocation.shadow->removed = true;
    just_removed_ = allocation.shadow;
}

void Races::lost(const Device &device) {
    for (const auto &entry : state().allocations)
        if (entry.second.device == &device && entry.second.shadow)
            entry.second.shadow->ignored = true;
    bool news = false;
    for (const auto &entry : state().contexts)
        news |= entry.second->device == &device && order_.over(*entry.second);
    if (news && !host_writes_.empty())
        host_writes_.learned([this](const Operation &known) { return order_.known(known); });
}

void Races::start_over() {
    order_.start_over();
    host_writes_.clear();
    kept_.clear();
    unwatched_.clear();
    functions_.clear();
    deferred_.clear();
}

} // namespace soft
