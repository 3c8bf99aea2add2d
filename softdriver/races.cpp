#include "races.h"

#include "race_text.h"
#include "state.h"

namespace soft {
namespace {

// In the place of a function: what the host did without calling any.
constexpr int host_write = -1;

bool on() { return state().settings.races != RaceMode::Off; }

int index(Function function) { return static_cast<int>(function); }

template <class Visit> void each_range(const Operation &operation, Visit visit) {
    for (const Range &range : operation.reads)
        visit(range, false);
    for (const Range &range : operation.writes)
        visit(range, true);
}

// Takes out one of a short list.
void remove_from(std::vector<OperationPtr> &list, const OperationPtr &operation) {
    list.erase(std::remove(list.begin(), list.end(), operation), list.end());
}

} // namespace

Races::Races()
    : order_([this](const OperationPtr &operation) { check(operation); }),
      watches_([this](const Operation &operation, const RaceShadow &memory, const Range &range,
                      bool writes) {
          record.add({index(operation.function), host_write, memory.id}, state().settings.races,
                     [&] { return race_with_host_write(memory, operation, range, writes); });
      }) {}

RaceShadowPtr Races::shadow_of(const Range &range) {
    Allocation *allocation = find_range(range.begin, range.end() - range.begin);
    if (!allocation)
        return just_forgotten_ && just_forgotten_->holds(range) ? just_forgotten_ : nullptr;
    if (!allocation->shadow) {
        allocation->shadow = std::make_shared<RaceShadow>(*allocation);
        allocation->shadow->ignored = allocation->device->sticky != CUDA_SUCCESS;
    }
    return allocation->shadow;
}

Races::Shadows Races::shadows_of(const Operation &operation) {
    Shadows shadows;
    each_range(operation, [&](const Range &range, bool) { shadows.push_back(shadow_of(range)); });
    return shadows;
}

void Races::submitted(Stream &stream, const OperationPtr &operation) {
    if (!on())
        return;
    operation->function = thread_state().function;
    order_.place(stream, operation);
    bool touches = !operation->reads.empty() || !operation->writes.empty();
    if (touches && !operation->mark.certain())
        kept_.emplace(operation.get(), shadows_of(*operation));
    just_forgotten_ = nullptr;
}

void Races::passed(Stream &stream, const OperationPtr &earlier) {
    if (!on())
        return;
    auto nothing = std::make_shared<Operation>();
    nothing->progress = Progress::Done; // it is in no queue: nobody may wait for it
    nothing->waits.push_back(earlier);
    order_.place(stream, nothing);
    nothing->waits.clear();
}

void Races::context_waits(const Context &context, const OperationPtr &earlier) {
    if (on())
        order_.add_gate(context, earlier);
}

void Races::ended(const Context &context) { order_.remove_gates(context); }

// It has its place in the order of things now.
void Races::check(const OperationPtr &operation) {
    if (operation->on_worker)
        functions_.push_back(operation);
    if (operation->reads.empty() && operation->writes.empty())
        return;
    auto kept = kept_.find(operation.get());
    Shadows shadows = kept == kept_.end() ? shadows_of(*operation) : std::move(kept->second);
    if (kept != kept_.end())
        kept_.erase(kept);
    auto shadow = shadows.begin();
    each_range(*operation, [&](const Range &range, bool writes) {
        if (*shadow && !(*shadow)->ignored)
            check_range(operation, *shadow, range, writes);
        shadow++;
    });
    // A function of the host that comes before may still write what the operation uses.
    if (!operation->synchronizes && behind_host_function(*operation))
        unwatched_.insert(operation.get());
    else if (!operation->synchronizes)
        watch(operation, shadows);
}

void Races::check_range(const OperationPtr &operation, const RaceShadowPtr &shadow,
                        const Range &range, bool writes) {
    if (operation->synchronizes) {
        shadow->use_word(operation, settled());
        watches_.forget(range);
        return;
    }
    for (const RaceConflict &earlier : shadow->access(operation, range, writes, settled())) {
        RaceKey key{index(operation->function), index(earlier.operation->function), shadow->id};
        record.add(key, state().settings.races,
                   [&] { return race_of_operations(*shadow, *operation, range, writes, earlier); });
    }
}

bool Races::behind_host_function(const Operation &operation) const {
    return std::any_of(functions_.begin(), functions_.end(), [&](const OperationPtr &function) {
        return operation.mark.after(function->mark);
    });
}

void Races::watch(const OperationPtr &operation, const Shadows &shadows) {
    auto shadow = shadows.begin();
    each_range(*operation, [&](const Range &range, bool writes) {
        if (*shadow && !(*shadow)->ignored && (*shadow)->host_visible())
            watches_.add(operation, *shadow, range, writes);
        shadow++;
    });
}

void Races::started(const OperationPtr &operation) {
    if (!operation->mark.track || !on())
        return;
    if (operation->synchronizes && operation->condition)
        order_.arrived(*operation);
    // The host can be told by its own function, or see the value in its memory.
    bool tells = operation->on_worker;
    if (operation->synchronizes)
        for (const Range &word : operation->writes)
            if (RaceShadowPtr shadow = shadow_of(word)) {
                shadow->release_word(word, operation->mark);
                tells |= shadow->host_visible();
            }
    if (tells)
        learn({operation});
    if (operation->reads.empty() && operation->writes.empty())
        return;
    if (unwatched_.erase(operation.get()))
        watch(operation, shadows_of(*operation));
    if (!operation->synchronizes)
        watches_.started(operation);
    if (order_.anybody_waits())
        order_.before_write(*operation);
}

void Races::ended(const OperationPtr &operation) {
    if (!operation->mark.track)
        return;
    watches_.ended(*operation);
    if (operation->on_worker)
        remove_from(functions_, operation);
    if (operation->writes.empty() || !on())
        return;
    if (order_.anybody_waits())
        order_.after_write(*operation);
}

void Races::dropped(const OperationPtr &operation) {
    kept_.erase(operation.get());
    unwatched_.erase(operation.get());
    watches_.forget(*operation);
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
    look();
    if (order_.learn(operations) && !watches_.empty())
        watches_.learned([this](const Operation &operation) { return order_.known(operation); });
}

void Races::learn_before(const OperationPtr &operation) {
    if (!on() || !operation)
        return;
    look();
    if (order_.learn_before(*operation) && !watches_.empty())
        watches_.learned([this](const Operation &known) { return order_.known(known); });
}

void Races::freed_by_host(const Allocation &allocation) {
    if (!on() || !allocation.shadow || allocation.shadow->ignored)
        return;
    look();
    const RaceShadow &shadow = *allocation.shadow;
    auto users = shadow.unsettled({&order_.host()});
    Range all{shadow.begin, shadow.bytes};
    order_.each_waiting([&](const OperationPtr &waiting) {
        auto kept = kept_.find(waiting.get());
        if (kept == kept_.end())
            return;
        const Shadows &used = kept->second;
        if (std::find(used.begin(), used.end(), allocation.shadow) != used.end())
            users.push_back({waiting, all, !waiting->writes.empty()});
    });
    Function free = thread_state().function;
    for (const RaceConflict &user : users) {
        // Freeing what nobody has used yet is no harm.
        Function function = user.operation->function;
        if (function == Function::cuMemAllocAsync || function == Function::cuMemAllocFromPoolAsync)
            continue;
        RaceKey key{index(free), index(user.operation->function), shadow.id};
        record.add(key, state().settings.races,
                   [&] { return race_with_free(shadow, free, state().next_operation, user); });
    }
}

void Races::forgotten(const Allocation &allocation) {
    if (!allocation.shadow)
        return;
    watches_.forget(*allocation.shadow);
    just_forgotten_ = allocation.shadow;
}

void Races::lost(const Device &device) {
    for (const auto &entry : state().allocations)
        if (entry.second.device == &device && entry.second.shadow)
            entry.second.shadow->ignored = true;
    bool news = false;
    for (const auto &entry : state().contexts)
        news |= entry.second->device == &device && order_.over(*entry.second);
    if (news && !watches_.empty())
        watches_.learned([this](const Operation &known) { return order_.known(known); });
}

void Races::start_over() {
    order_.start_over();
    watches_.clear();
    kept_.clear();
    unwatched_.clear();
    functions_.clear();
}

} // namespace soft
