#include "explore/chooser.h"

#include <algorithm>

namespace soft::explore {

void Chooser::start_drawing(uint64_t seed) {
    random_ = Random(seed);
    replays_ = strongest_ = false;
    run_ = {};
}

void Chooser::start_replay(Script script, std::vector<Sleeper> sleepers) {
    replays_ = true;
    run_number_++;
    seeds_ = 0;
    actors_ = 0;
    script_ = std::move(script);
    strongest_ = !script_.empty() && script_.front() == strongest;
    next_ = strongest_;
    sleepers_ = std::move(sleepers);
    priorities_ = 0;
    redundant_ = false;
    run_ = {};
    if (strongest_)
        run_.choices.push_back(strongest);
    options_.clear();
}

uint64_t Chooser::draw(Choice choice, uint64_t count) {
    if (!replays_)
        return random_.below(count);
    if (count > 1 && !is_weakest_first(choice))
        limit(Limit::Unlogged);
    return strongest_ && is_weakest_first(choice) ? count - 1 : 0;
}

size_t Chooser::first_awake(const std::vector<Actor> &options) const {
    auto awake = std::find_if(options.begin(), options.end(), [&](Actor option) {
        return std::none_of(sleepers_.begin(), sleepers_.end(),
                            [&](const Sleeper &sleeper) { return sleeper.actor == option; });
    });
    return awake == options.end() ? 0 : static_cast<size_t>(awake - options.begin());
}

size_t Chooser::of_priority(const std::vector<Actor> &options) {
    constexpr uint64_t steps_of_a_priority = 16;
    if (Random(priorities_ + run_.choices.size()).below(steps_of_a_priority) == 0)
        priorities_ = Random(priorities_).next() | 1;
    auto priority = [&](Actor option) { return Random(priorities_ ^ (option + 1)).next(); };
    auto highest = std::max_element(options.begin(), options.end(), [&](Actor one, Actor other) {
        return priority(one) < priority(other);
    });
    return static_cast<size_t>(highest - options.begin());
}

size_t Chooser::choose(const std::vector<Actor> &options) {
    options_ = options;
    if (options.size() == 1)
        return 0;
    size_t chosen = 0;
    if (next_ < script_.size()) {
        chosen = script_[next_++];
        if (chosen >= options.size()) {
            if (!run_.stopped && run_.misfit.empty())
                run_.misfit = "choice " + std::to_string(next_) + " of the script is option " +
                              std::to_string(chosen) + ", and there are only " +
                              std::to_string(options.size());
            chosen = 0;
        }
    } else {
        chosen = priorities_ ? of_priority(options) : first_awake(options);
    }
    run_.choices.push_back(static_cast<uint32_t>(chosen));
    return chosen;
}

size_t Chooser::made(Step step) {
    step.options = options_.empty() ? std::vector<Actor>{step.actor} : std::move(options_);
    options_.clear();
    if (next_ == script_.size()) {
        auto is_next = [&](const Sleeper &sleeper) { return sleeper.actor == step.actor; };
        bool slept = std::any_of(sleepers_.begin(), sleepers_.end(), is_next);
        // A step of a sleeping actor: the rest of the run would repeat a run that was explored
        // before.
        redundant_ |= slept;
        sleepers_.erase(std::remove_if(sleepers_.begin(), sleepers_.end(),
                                       [&](const Sleeper &sleeper) {
                                           return sleeper.actor == step.actor ||
                                                  sleeper.next.conflicts(step.touched);
                                       }),
                        sleepers_.end());
    }
    run_.fresh += !redundant_ && !run_.stopped;
    run_.steps.push_back(std::move(step));
    return run_.steps.size() - 1;
}

void Chooser::stop(Limit why) {
    limit(why);
    run_.stopped = true;
}

Run Chooser::take() {
    if (!run_.stopped && run_.misfit.empty() && next_ < script_.size())
        run_.misfit = "the script has " + std::to_string(script_.size()) +
                      " choices, and the run came to " + std::to_string(next_);
    Run run = std::move(run_);
    run_ = {};
    return run;
}

} // namespace soft::explore
