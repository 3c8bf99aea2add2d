#include "explore/search.h"

#include "explore/choices.h"

#include <algorithm>

namespace soft::explore {
namespace {

// A test with more steps is not analysed, because the time for it grows with their square. The
// text of Limit::Steps has this number.
constexpr size_t most_steps = 4000;

bool contains(const std::vector<Sleeper> &sleepers, Actor actor) {
    return std::any_of(sleepers.begin(), sleepers.end(),
                       [&](const Sleeper &sleeper) { return sleeper.actor == actor; });
}

bool contains(const std::vector<Actor> &actors, Actor actor) {
    return std::find(actors.begin(), actors.end(), actor) != actors.end();
}

} // namespace

bool Search::Node::has(Actor actor) const {
    return actor == chosen || todo.count(actor) || contains(explored, actor);
}

bool Search::Node::sleeps(Actor actor) const { return contains(sleepers, actor); }

std::vector<Sleeper> Search::sleepers_after(const Node &node) {
    std::vector<Sleeper> left;
    for (const auto *list : {&node.sleepers, &node.explored})
        for (const Sleeper &sleeper : *list)
            if (sleeper.actor != node.chosen && !sleeper.next.conflicts(node.made.touched))
                left.push_back(sleeper);
    return left;
}

// Updates the nodes to the states of this run. Returns false if the run differs from the previous
// run before the step at which a different choice was planned.
bool Search::follow(const Run &run) {
    size_t kept = nodes_.empty() ? 0 : branch_ + 1;
    if (run.stopped && run.fresh < kept) {
        nodes_.resize(run.fresh);
        return true;
    }
    for (size_t i = 0; i < kept; i++) {
        const Node &node = nodes_[i];
        bool same = i < run.steps.size() && run.steps[i].options == node.options &&
                    run.steps[i].actor == node.chosen &&
                    (i == branch_ || (run.steps[i].name == node.made.name &&
                                      run.steps[i].touched == node.made.touched));
        if (same)
            continue;
        const Step is = i < run.steps.size() ? run.steps[i] : Step{};
        // What was made at the branch before was planned to differ: only the options do.
        misfit_ = {"", i + 1, i == branch_ && is.actor == node.chosen ? is : node.made, is};
        return false;
    }
    if (kept)
        nodes_[branch_].made = run.steps[branch_];
    for (size_t i = kept; i < run.fresh; i++) {
        const Step &step = run.steps[i];
        Node node{step.options, step.actor, step, {}, {}, {}};
        if (!everything_ && i)
            node.sleepers = sleepers_after(nodes_.back());
        if (everything_)
            node.todo.insert(step.options.begin(), step.options.end());
        nodes_.push_back(std::move(node));
    }
    return true;
}

void Search::add(const Run &run) {
    limits_.insert(run.limits.begin(), run.limits.end());
    (run.stopped || run.fresh == run.steps.size() ? runs_ : redundant_)++;
    if (run.fresh > most_steps) {
        limits_.insert(text_of(Limit::Steps));
        nodes_.clear();
        return;
    }
    if (misfit_ || !follow(run))
        return;
    if (!run.misfit.empty())
        misfit_ = Misfit{run.misfit, 0, {}, {}};
    else if (!everything_)
        look_for_conflicts(run);
}

// For each step of the run, finds the earlier steps that conflict with it and that nothing orders.
void Search::look_for_conflicts(const Run &run) {
    std::vector<Order> orders; // for each step, the steps that are ordered before it, and itself
    auto join = [](Order &order, const Order &other) {
        order.resize(std::max(order.size(), other.size()));
        for (size_t actor = 0; actor < other.size(); actor++)
            order[actor] = std::max(order[actor], other[actor]);
    };
    auto knows = [&](const Order &order, size_t step) {
        Actor actor = run.steps[step].actor;
        return actor < order.size() && order[actor] > step;
    };
    std::vector<size_t> last; // for each actor, one more than the index of its last step
    for (size_t i = 0; i < run.fresh; i++) {
        const Step &step = run.steps[i];
        last.resize(std::max<size_t>(last.size(), step.actor + 1));
        Order order;
        if (last[step.actor])
            order = orders[last[step.actor] - 1];
        for (size_t earlier : step.after)
            join(order, orders[earlier]);
        // A wait for a value may follow a step only because the value was not there before that
        // step. The wait may still run before the steps that are ordered before that step, so
        // `hidden` does not contain these.
        Order hidden = order;
        bool blocked = false;
        for (size_t earlier = i; earlier-- > 0;) {
            const Step &other = run.steps[earlier];
            if (knows(hidden, earlier) || !other.touched.conflicts(step.touched))
                continue;
            if (i >= branch_)
                reverse(run, orders, earlier, i, !blocked);
            join(order, orders[earlier]);
            if (!step.waits_for_value || contains(other.options, step.actor))
                join(hidden, orders[earlier]);
            else
                blocked = true;
        }
        order.resize(std::max<size_t>(order.size(), step.actor + 1));
        order[step.actor] = last[step.actor] = i + 1;
        orders.push_back(std::move(order));
    }
}

// Plans a run in which `second` comes before `first`: at the state before `first`, the run must
// choose a step that can lead to `second` without `first`. If no such step can run there, all
// others are tried, if `tries_others`.
void Search::reverse(const Run &run, const std::vector<Order> &orders, size_t first, size_t second,
                     bool tries_others) {
    auto before = [&](size_t earlier, size_t later) {
        Actor actor = run.steps[earlier].actor;
        const Order &order = orders[later];
        return actor < order.size() && order[actor] > earlier;
    };
    // The steps after `first` that do not depend on it, and then `second`.
    std::vector<size_t> rest;
    for (size_t i = first + 1; i < second; i++)
        if (!before(first, i))
            rest.push_back(i);
    std::set<Actor> initials;
    for (size_t i : rest)
        if (std::none_of(rest.begin(), rest.end(),
                         [&](size_t other) { return other < i && before(other, i); }))
            initials.insert(run.steps[i].actor);
    const Step &last = run.steps[second];
    bool is_first = std::none_of(rest.begin(), rest.end(), [&](size_t i) {
        return run.steps[i].actor == last.actor || run.steps[i].touched.conflicts(last.touched) ||
               std::any_of(last.after.begin(), last.after.end(),
                           [&](size_t earlier) { return earlier == i || before(i, earlier); });
    });
    if (is_first)
        initials.insert(last.actor);
    Node &node = nodes_[first];
    if (std::any_of(initials.begin(), initials.end(),
                    [&](Actor actor) { return node.has(actor) || node.sleeps(actor); }))
        return;
    for (Actor actor : node.options)
        if (initials.count(actor)) {
            node.todo.insert(actor);
            return;
        }
    // None of these actors can make a step here, because each waits with its next operation, for
    // example for a value in memory.
    for (Actor actor : node.options)
        if (tries_others && !node.has(actor))
            node.todo.insert(actor);
}

bool Search::next(Plan &plan) {
    if (misfit_)
        return false;
    while (!nodes_.empty()) {
        Node &node = nodes_.back();
        auto wanted = std::find_if(node.todo.begin(), node.todo.end(), [&](Actor actor) {
            return actor != node.chosen && !contains(node.explored, actor) && !node.sleeps(actor);
        });
        if (wanted == node.todo.end()) {
            nodes_.pop_back();
            continue;
        }
        node.explored.push_back({node.chosen, node.made.touched.in_any_run()});
        node.chosen = *wanted;
        node.todo.erase(wanted);
        branch_ = nodes_.size() - 1;
        plan = {};
        for (const Node &each : nodes_) {
            auto at = std::find(each.options.begin(), each.options.end(), each.chosen);
            if (each.options.size() > 1)
                plan.script.push_back(static_cast<uint32_t>(at - each.options.begin()));
        }
        if (!everything_)
            for (const auto *list : {&node.sleepers, &node.explored})
                plan.sleepers.insert(plan.sleepers.end(), list->begin(), list->end());
        return true;
    }
    return false;
}

} // namespace soft::explore
