#pragma once

#include "explore/chooser.h"

#include <cstdint>
#include <optional>
#include <set>

namespace soft::explore {

// Explores the orders of one program's steps, up to equivalence: two orders are equivalent if they
// differ only in neighbouring steps that do not conflict. After each run it looks for steps that
// conflict, that nothing orders, and that came in one order only, and plans a run in which they
// come in the other one ("source sets"). A step that was explored from a state sleeps until a
// conflicting step has been made ("sleep sets"), so that no order is explored twice.
class Search {
  public:
    // What the next run is to do.
    struct Plan {
        Script script;
        std::vector<Sleeper> sleepers;
        uint64_t seed = 0; // of random choices behind the script, or 0
    };

    // How a run differed from an earlier one with the same choices.
    struct Misfit {
        std::string script; // how the run did not fit its script, if there is no such step
        size_t step = 0;    // one more than the index of the first step that differed
        Step was, is;       // `is` has no name if the run had ended
    };

    // With `everything`, all orders are explored, equivalent ones, too. Tests compare the two.
    explicit Search(bool everything = false) : everything_(everything) {}

    // Learns from a finished run.
    void add(const Run &run);
    // Plans the next run. Returns false if all orders have been explored.
    bool next(Plan &plan);

    uint64_t runs() const { return runs_; }           // runs that were different from all before
    uint64_t redundant() const { return redundant_; } // the others
    const std::optional<Misfit> &misfit() const { return misfit_; }
    const std::set<std::string> &limits() const { return limits_; }

  private:
    // The state before a step of the last run.
    struct Node {
        std::vector<Actor> options;
        Actor chosen;
        Step made; // by `chosen`
        std::vector<Sleeper> explored, sleepers;
        std::set<Actor> todo;

        bool has(Actor actor) const;
        bool sleeps(Actor actor) const;
    };
    using Order = std::vector<size_t>; // for each actor, one more than the index of its last step

    bool follow(const Run &run);
    void look_for_conflicts(const Run &run);
    void reverse(const Run &run, const std::vector<Order> &orders, size_t first, size_t second,
                 bool tries_others);
    static std::vector<Sleeper> sleepers_after(const Node &node);

    bool everything_;
    std::vector<Node> nodes_;
    size_t branch_ = 0; // the node at which the planned run differs from the one before
    uint64_t runs_ = 0, redundant_ = 0;
    std::optional<Misfit> misfit_;
    std::set<std::string> limits_;
};

} // namespace soft::explore
