#pragma once

#include "base/random.h"
#include "explore/choices.h"
#include "explore/run.h"

namespace soft::explore {

// An actor whose next step was explored from an earlier state, and need not be explored again. It
// need not make this step until a step that conflicts with it comes before.
struct Sleeper {
    Actor actor;
    Footprint next;
};

// Takes all free choices of the driver. Under the schedules eager, lazy and random it draws them;
// under replay it follows a script, and records the run.
class Chooser {
  public:
    // Draws a number from 0 to count - 1. Under replay returns 0, or the last number if the script
    // begins with `strongest`; this is a limit if other numbers permit more.
    uint64_t draw(Choice choice, uint64_t count);
    // Records that a driver may let the present call wait for unfinished work.
    void may_wait() { run_.waits_less |= replays_ && !strongest_; }
    // Returns whether such calls wait: under replay, if the script begins with `strongest`.
    bool is_strongest() const { return strongest_; }
    // Draws a seed. Under replay: the number of earlier seeds in this run, because a kernel with
    // the same number has the same seed in each run.
    uint64_t seed() { return replays_ ? seeds_++ : random_.next(); }
    Random &random() { return random_; }

    // Restarts the generator, and ends a replay.
    void start_drawing(uint64_t seed);
    // Starts a run under replay. `sleepers` need not make their next step when the script has
    // ended.
    void start_replay(Script script, std::vector<Sleeper> sleepers = {});
    // Lets the rest of the run choose by priorities that the actors draw, and that change from time
    // to time (PCT): few changes of priorities find most mistakes.
    void draw_priorities(uint64_t seed) { priorities_ = seed; }
    bool replays() const { return replays_; }
    // Changes with each run, so that others know what they have noted for an earlier one.
    uint64_t run_number() const { return run_number_; }
    // A new number for a stream that queues its first operation in this run.
    Actor new_actor() { return ++actors_; }

    // Chooses who makes the next step, and returns the index of this option.
    size_t choose(const std::vector<Actor> &options);
    // Records the step that was chosen last. Sets its options. Returns its index.
    size_t made(Step step);
    // Sets the client's words for a step.
    void name(size_t step, const std::string &words) { run_.steps.at(step).what = words; }
    // Records why not all orders can be explored.
    void limit(Limit why) { run_.limits.insert(text_of(why)); }
    // Records that the run has failed, even if the program ignores the failure.
    void fail(const std::string &why) { run_.failure = why; }
    // Says what the host waits for while nothing can run; empty: something runs again.
    void wait(const std::string &words) { run_.wait = words; }
    // Records that the rest of the run cannot be repeated, and why. Nothing is learned from it.
    void stop(Limit why);
    const Run &run() const { return run_; }
    // Returns the run, and records a new one from here on.
    Run take();

  private:
    size_t first_awake(const std::vector<Actor> &options) const;
    size_t of_priority(const std::vector<Actor> &options);

    Random random_;
    bool replays_ = false, strongest_ = false;
    uint64_t run_number_ = 0, seeds_ = 0;
    Actor actors_ = 0;
    Script script_;
    size_t next_ = 0; // the next choice of the script
    std::vector<Sleeper> sleepers_;
    std::vector<Actor> options_; // of the step that was chosen last
    uint64_t priorities_ = 0;    // the seed of the priorities, or 0
    bool redundant_ = false; // all options were asleep, so the rest of the run shows nothing new
    Run run_;
};

} // namespace soft::explore
