#include "api/explore_process.h"

#include "api/call.h"
#include "api/state.h"
#include "explore/exchange.h"
#include "race/race_names.h"

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace soft {
namespace {

// The folder of the plan, or null if this process is not explored. It is never destroyed, because
// the run is written at exit.
const std::string *plans = nullptr;
pid_t explored = 0;
size_t named = 0; // the steps of the run for which the client has been asked

std::string content(const std::string &name) {
    std::ifstream file(*plans + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// Creates an empty file of this name in the folder of the plan. Returns false if the file exists,
// because another process has created it.
bool make(const std::string &name) {
    int file = open((*plans + "/" + name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0)
        close(file);
    return file >= 0;
}

// Called at exit. Work that is still queued never runs, as without exploring. It is part of the
// run, because in another order it runs before.
void write_run() {
    if (getpid() != explored)
        return;
    Lock lock(state().mutex, std::try_to_lock);
    if (!lock.owns_lock())
        return;
    state().scheduler.record_left();
    explore::Run run = state().chooser.take();
    if (access((*plans + "/others").c_str(), F_OK) == 0)
        run.limits.insert(text_of(explore::Limit::Processes));
    const std::string unfinished = *plans + "/run.part", name = *plans + "/run";
    std::ofstream(unfinished) << text_of(run);
    std::rename(unfinished.c_str(), name.c_str());
}

} // namespace

void tell_wait(const std::string &words) {
    state().chooser.wait(words);
    if (plans && getpid() == explored)
        std::ofstream(*plans + "/wait") << words;
}

void follow_plan(State &driver) {
    if (driver.settings.explore.empty())
        return;
    plans = new std::string(driver.settings.explore);
    if (!make("process")) {
        make("others");
        plans = nullptr;
        return;
    }
    explored = getpid();
    explore::Search::Plan plan;
    const std::string text = content("plan");
    if (!text.empty() && !explore::parse_plan(text, plan))
        driver.environment_error = *plans + "/plan is not a plan";
    driver.settings.schedule = Schedule::Replay;
    driver.chooser.start_replay(std::move(plan.script), std::move(plan.sleepers));
    if (plan.seed)
        driver.chooser.draw_priorities(plan.seed);
    driver.start_run();
    std::atexit(write_run);
}

void name_new_steps(Lock &lock) {
    if (!plans)
        return;
    explore::Chooser &chooser = state().chooser;
    cudadrvSoftWords client = state().words;
    while (named < chooser.run().steps.size()) {
        size_t step = named++;
        RaceLabel label = chooser.run().steps[step].label;
        std::string words;
        if (!label.known())
            continue;
        lock.unlock();
        name_operation(client, label, words);
        acquire(lock);
        chooser.name(step, words);
    }
}

} // namespace soft
