#include "api/explore.h"

#include "api/call.h"
#include "api/state.h"
#include "base/json.h"
#include "explore/exchange.h"
#include "race/race_names.h"

namespace soft {
namespace {

std::string list(const std::set<std::string> &texts) {
    std::string json;
    for (const std::string &text : texts)
        json += (json.empty() ? "" : ", ") + quoted(text);
    return "[" + json + "]";
}

std::string list(const std::vector<Range> &ranges) {
    std::string json;
    for (const Range &range : ranges)
        json += (json.empty() ? "[" : ", [") + std::to_string(range.begin) + ", " +
                std::to_string(range.end()) + "]";
    return "[" + json + "]";
}

template <class Number> std::string list(const std::vector<Number> &numbers) {
    std::string json;
    for (Number number : numbers)
        json += (json.empty() ? "" : ", ") + std::to_string(number);
    return "[" + json + "]";
}

std::string json_of(const explore::Step &step) {
    return "{\"actor\": " + std::to_string(step.actor) + ", \"options\": " + list(step.options) +
           ", \"name\": " + quoted(step.name) + ", \"what\": " + quoted(step.what) +
           ", \"stream\": " + quoted(step.stream) + ", \"after\": " + list(step.after) +
           ", \"reads\": " + list(step.touched.reads) +
           ", \"writes\": " + list(step.touched.writes) + "}";
}

// Asks the client for its words for the steps. The state lock must not be held.
void name_steps(explore::Run &run, const cudadrvSoftWords &client) {
    for (explore::Step &step : run.steps)
        name_operation(client, step.label, step.what);
}

std::string json_of(const explore::Run &run) {
    std::string steps;
    for (const explore::Step &step : run.steps)
        steps += (steps.empty() ? "" : ", ") + json_of(step);
    return "{\"script\": " + quoted(text_of(run.choices)) + ", \"steps\": [" + steps +
           "], \"limits\": " + list(run.limits) + ", \"misfit\": " + quoted(run.misfit) +
           ", \"failure\": " + quoted(run.failure) + ", \"wait\": " + quoted(run.wait) + "}";
}

std::string words_for(const explore::Step &step) {
    if (!step.what.empty())
        return step.what;
    return step.actor == explore::host ? step.name : step.name + " on " + step.stream;
}

// Says how a run differed from an earlier one. Releases the lock while the client names the steps.
std::string told_of(explore::Search::Misfit misfit, Lock &lock) {
    if (!misfit.step)
        return misfit.script;
    cudadrvSoftWords client = state().words;
    lock.unlock();
    for (explore::Step *step : {&misfit.was, &misfit.is})
        name_operation(client, step->label, step->what);
    acquire(lock);
    std::string was = words_for(misfit.was);
    std::string is = misfit.is.name.empty() ? "the end" : words_for(misfit.is);
    if (was == is)
        is = "the same with other memory, or beside other work,";
    return "step " + std::to_string(misfit.step) + " was " + was + ", and is " + is +
           " in a run with the same choices";
}

// Learns from a run that followed the plan. Returns the answer of cudadrvSoftExploreEnd. Releases
// the lock if the run did not fit.
std::string learn(const explore::Run &run, Lock &lock) {
    State &driver = state();
    bool more = true;
    if (driver.planned) {
        driver.search.add(run);
        more = driver.search.next(driver.plan);
    }
    std::string misfit = run.misfit;
    if (driver.planned && driver.search.misfit())
        misfit = told_of(*driver.search.misfit(), lock);
    return "{\"script\": " + quoted(text_of(run.choices)) +
           ", \"more\": " + (more ? "true" : "false") +
           ", \"runs\": " + std::to_string(driver.search.runs()) +
           ", \"redundant\": " + std::to_string(driver.search.redundant()) +
           ", \"waits_less\": " + (run.waits_less ? "true" : "false") +
           ", \"limits\": " + list(driver.search.limits()) + ", \"misfit\": " + quoted(misfit) +
           ", \"failure\": " + quoted(run.failure) + "}";
}

} // namespace
} // namespace soft

using namespace soft;

extern "C" int cudadrvSoftExploreStart(int how) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    state().search = explore::Search(how & 1);
    state().places_looks = how & 2;
    state().plan = {};
    return CUDA_SUCCESS;
}

extern "C" int cudadrvSoftExploreSave(void) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    state().saved.save();
    return CUDA_SUCCESS;
}

extern "C" int cudadrvSoftExploreBegin(const char *text, unsigned long long seed) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Script script;
    if (text && !parse_script(text, script))
        return CUDA_ERROR_INVALID_VALUE;
    Lock lock(state().mutex);
    State &driver = state();
    driver.saved.restore();
    driver.settings.schedule = Schedule::Replay;
    driver.planned = !text && !seed;
    if (driver.planned)
        driver.chooser.start_replay(driver.plan.script, driver.plan.sleepers);
    else
        driver.chooser.start_replay(std::move(script));
    if (seed)
        driver.chooser.draw_priorities(seed);
    driver.start_run();
    driver.scheduler.reconsider();
    return CUDA_SUCCESS;
}

extern "C" const char *cudadrvSoftExploreEnd(void) {
    static thread_local std::string text;
    if (in_forked_child())
        return nullptr;
    Lock lock(state().mutex);
    State &driver = state();
    driver.scheduler.drain(lock);
    driver.scheduler.record_left();
    name_races(lock);
    text = learn(driver.chooser.take(), lock);
    return text.c_str();
}

extern "C" const char *cudadrvSoftExplorePlan(const char *script, unsigned long long seed) {
    static thread_local std::string text;
    Lock lock(state().mutex);
    explore::Search::Plan plan;
    if (script && !parse_script(script, plan.script))
        return nullptr;
    plan.seed = seed;
    state().planned = !script && !seed;
    text = text_of(state().planned ? state().plan : plan);
    return text.c_str();
}

extern "C" const char *cudadrvSoftExploreLearn(const char *text) {
    static thread_local std::string answer;
    explore::Run run;
    if (!explore::parse_run(text, run))
        return nullptr;
    Lock lock(state().mutex);
    answer = learn(run, lock);
    return answer.c_str();
}

extern "C" const char *cudadrvSoftExploreRead(const char *text) {
    static thread_local std::string answer;
    explore::Run run;
    if (!explore::parse_run(text, run))
        return nullptr;
    answer = json_of(run);
    return answer.c_str();
}

extern "C" int cudadrvSoftExploreStop(void) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    state().search = explore::Search();
    state().plan = {};
    state().saved.clear();
    return CUDA_SUCCESS;
}

extern "C" const char *cudadrvSoftRun(void) {
    static thread_local std::string text;
    if (in_forked_child())
        return nullptr;
    Lock lock(state().mutex);
    explore::Run run = state().chooser.run();
    cudadrvSoftWords client = state().words;
    lock.unlock();
    name_steps(run, client);
    text = json_of(run);
    return text.c_str();
}

extern "C" void cudadrvSoftAsks(int purpose) {
    asks_for = purpose == 1 ? AsksFor::End : purpose == 2 ? AsksFor::Reuse : AsksFor::Answer;
}

extern "C" void cudadrvSoftUses(unsigned long long address, size_t bytes, int writes) {
    if (in_forked_child() || !bytes)
        return;
    Lock lock(state().mutex);
    state().host_uses.used_by_function({address, bytes}, writes != 0);
}

extern "C" int cudadrvSoftRepeats(void) {
    if (in_forked_child())
        return 0;
    Lock lock(state().mutex);
    return state().chooser.replays();
}
