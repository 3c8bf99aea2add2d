#include "api/call.h"
#include "api/state.h"
#include "base/caller.h"
#include "work/schedule.h"

#include <algorithm>

// The scheduler under the schedule `replay`: in each place where several operations can run, or the
// host can go on instead, the chooser decides. The host makes a choice only where it looks at the
// device, because what it does between two looks commutes with all operations.

namespace soft {

using explore::Limit;

namespace {

// A kernel with more pieces is assumed to wait for work of other streams.
constexpr int most_pieces = 1024;
constexpr int most_early_answers = 2;
// A wait without progress ends with a message after this time.
constexpr auto idle_after = std::chrono::seconds(1);
// In microseconds: how long the host waits for a host function.
constexpr long function_after = 2000000, pause_between = 1000;

} // namespace

// Notes a second thread of the program, whose calls are not choices.
void Scheduler::note_thread() {
    explore::Chooser &chooser = state().chooser;
    if (in_callback)
        return;
    const void *thread = &thread_state();
    if (threaded_run_ != chooser.run_number()) {
        threaded_run_ = chooser.run_number();
        thread_ = thread;
        early_answers_ = 0;
    } else if (thread_ != thread) {
        chooser.stop(Limit::Threads);
    }
}

// Returns the operations that can run now: those that a wait requires first, then the others, each
// in the order of their turns. A kernel that lets the next one of its stream begin can go on, too.
std::vector<OperationPtr> Scheduler::ready_operations() {
    std::vector<OperationPtr> found;
    for (Stream *stream : busy_)
        for (size_t i = 0; i < stream->queue.size(); i++) {
            const OperationPtr &next = stream->queue[i];
            if (i && (next->predecessor != stream->queue[i - 1] ||
                      !lets_next_begin(*stream->queue[i - 1])))
                break;
            if (!next->released && ready(*next))
                found.push_back(next);
        }
    auto rank = [](const OperationPtr &operation) {
        bool required = operation->number <= operation->stream->required;
        return std::make_pair(!required, operation->turn);
    };
    std::sort(found.begin(), found.end(),
              [&](auto &one, auto &other) { return rank(one) < rank(other); });
    return found;
}

// Lets the chooser decide whether the host goes on, if it can, or which operation runs. Returns
// true if the host goes on.
bool Scheduler::choose_next(Lock &lock, bool host_can, const std::vector<OperationPtr> &ready) {
    std::vector<explore::Actor> options;
    if (host_can)
        options.push_back(explore::host);
    for (const OperationPtr &operation : ready)
        options.push_back(state().steps.actor_of(*operation));
    size_t chosen = state().chooser.choose(options);
    if (options[chosen] == explore::host)
        return true;
    early_answers_ = 0;
    runs_again();
    const OperationPtr operation = ready[chosen - host_can];
    state().host_uses.close();
    perform(lock, operation);
    if (operation->on_worker)
        wait_for_worker(lock, operation);
    else
        run_all_pieces(lock, operation);
    return false;
}

// Runs the other pieces of a kernel as one step, up to a place where other work may run: where the
// next kernel can begin, or where the work waits for other operations.
void Scheduler::run_all_pieces(Lock &lock, const OperationPtr &operation) {
    for (int pieces = 0; operation->progress == Progress::Paused; pieces++) {
        bool lets_next = operation->pieces->lets_next_begin();
        bool waits = operation->chain && operation->pieces->waits();
        bool stops = !operation->pieces->can_go_on() || (waits && !operation->has_waited) ||
                     (lets_next && !operation->let_next_begin);
        if (stops) {
            state().steps.paused(*operation);
            operation->let_next_begin |= lets_next;
            operation->has_waited |= waits;
            return;
        }
        if (pieces == most_pieces) {
            state().chooser.limit(Limit::LongKernel);
            operation->runs_long = true;
            Outcome unknown; // as an error, so that it conflicts with all other operations
            unknown.status = CUDA_ERROR_UNKNOWN;
            state().steps.ran(*operation, &unknown);
            return;
        }
        run(lock, operation);
    }
}

void Scheduler::wait_for_worker(Lock &lock, const OperationPtr &operation) {
    for (long waited = 0; !operation->done(); waited += pause_between) {
        if (waited > function_after) {
            state().chooser.stop(Limit::FunctionWaits);
            return;
        }
        pause(lock, pause_between);
    }
}

// Runs work until all targets are done, and lets the host go on then. If nothing can run now,
// waits, or returns false unless it `blocks`.
bool Scheduler::finish_by_choice(Lock &lock, const std::vector<OperationPtr> &targets,
                                 bool blocks) {
    note_thread();
    for (const OperationPtr &target : targets)
        demand(target);
    for (;;) {
        bool done = all_done(targets);
        std::vector<OperationPtr> ready = ready_operations();
        if (!ready.empty() || done) {
            if (choose_next(lock, done, ready))
                break;
            continue;
        }
        // Only another process, a host function or another thread can end this wait.
        note_idle(lock, targets);
        if (all_done(targets))
            continue;
        if (!blocks)
            return false;
        pause(lock, pause_between);
    }
    runs_again();
    state().steps.waited(targets);
    open_managed();
    return true;
}

bool Scheduler::answer_by_choice(Lock &lock, const std::vector<OperationPtr> &targets) {
    if (asks_for == AsksFor::Reuse)
        return std::all_of(targets.begin(), targets.end(), [](const OperationPtr &target) {
            return target->done() && state().races.knows(*target);
        });
    if (asks_for == AsksFor::End)
        return finish_by_choice(lock, targets, false);
    note_thread();
    explore::Chooser &chooser = state().chooser;
    for (;;) {
        bool done = all_done(targets);
        std::vector<OperationPtr> ready = ready_operations();
        bool many = !done && early_answers_ >= most_early_answers && !ready.empty();
        // A kernel that runs long may wait for what the host does after this query.
        bool polls = many && !std::all_of(ready.begin(), ready.end(),
                                          [](auto &operation) { return operation->runs_long; });
        if (!done && ready.empty())
            note_idle(lock, targets);
        if (polls)
            chooser.limit(Limit::Asks);
        else if (many)
            chooser.stop(Limit::LongKernel);
        if (choose_next(lock, !polls, ready))
            break;
    }
    bool done = all_done(targets);
    early_answers_ = done ? 0 : early_answers_ + 1;
    state().steps.asked(targets);
    if (done)
        open_managed();
    return done;
}

void Scheduler::use(Lock &lock, const Range &page, bool writes, const std::string &words,
                    bool polls) {
    note_thread();
    explore::Chooser &chooser = state().chooser;
    // A host function of Python cannot run while this thread holds the interpreter's lock.
    bool functions_can = !holds_interpreter();
    for (;;) {
        std::vector<OperationPtr> ready = ready_operations();
        auto is_function = [](auto &operation) { return operation->on_worker; };
        if (!functions_can && std::any_of(ready.begin(), ready.end(), is_function)) {
            chooser.limit(Limit::FunctionBeforeUse);
            ready.erase(std::remove_if(ready.begin(), ready.end(), is_function), ready.end());
        }
        bool waits = polls && !ready.empty();
        if (waits)
            chooser.stop(Limit::Polls);
        if (choose_next(lock, !waits, ready))
            break;
        polls = false;
    }
    state().steps.used(page, writes, words);
}

void Scheduler::runs_again() {
    idle_since_ = {};
    if (!state().chooser.run().wait.empty())
        tell_wait("");
}

// Called when the host waits for work, or asks for it, and no work can run. If that lasts, records
// what the host waits for, and may let the wait fail. Releases the lock while the client names the
// work.
void Scheduler::note_idle(Lock &lock, const std::vector<OperationPtr> &targets) {
    Clock::time_point now = Clock::now();
    if (idle_since_ == Clock::time_point()) {
        idle_since_ = now;
        return;
    }
    explore::Chooser &chooser = state().chooser;
    std::chrono::milliseconds most(state().settings.milliseconds);
    bool late = most.count() && now - idle_since_ > most && chooser.run().failure.empty();
    if (now - idle_since_ < idle_after || (!chooser.run().wait.empty() && !late))
        return;
    const std::string words = words_for_wait(lock);
    if (all_done(targets) || !ready_operations().empty())
        return;
    tell_wait(words);
    bool never = never_ends();
    if (!never)
        chooser.limit(Limit::Wait);
    if (!never && !late)
        return;
    chooser.fail(never ? text_of_deadlock(words)
                       : "a wait did not end within " + std::to_string(most.count()) +
                             " ms: " + words);
    // The call returns an error, so that the program ends.
    for (const OperationPtr &target : targets)
        if (!target->done())
            lose_device(*target->stream->owner->device, CUDA_ERROR_LAUNCH_TIMEOUT);
}

std::string Scheduler::text_of_deadlock(const std::string &words) const {
    std::string text = "deadlock: the host waits for work that waits for a value in memory, and "
                       "nothing is left that could write this value: " +
                       words;
    if (host_could_write())
        text += ". (The host can write this memory, too. If another thread does so without a call "
                "of the driver, and only after more than a second, this is no deadlock.)";
    return text;
}

// Returns the call in which the host waits, and the operations for which it waits.
std::string Scheduler::words_for_wait(Lock &lock) {
    std::vector<OperationPtr> first;
    for (const Stream *stream : busy_)
        if (stream->queue.front()->number <= stream->required)
            first.push_back(stream->queue.front());
    std::string words;
    for (const OperationPtr &operation : first) {
        bool waits = operation->progress == Progress::Queued && !operation->condition;
        if (waits) // for the others
            continue;
        bool function = operation->on_worker, value = operation->synchronizes;
        words += (words.empty() ? "" : "; ") + state().steps.describe(lock, *operation);
        words += function ? " (the function has not returned)"
                 : value  ? " (the value is not there)"
                          : "";
    }
    std::string call = info(thread_state().function).symbol;
    lock.unlock();
    std::string line = python_line(true);
    acquire(lock);
    return call + (line.empty() ? "" : " at " + line) + " waits for " +
           (words.empty() ? "work" : words);
}

// Returns whether the program can write a value for which a stream waits without a driver call.
bool Scheduler::host_could_write() const {
    return std::any_of(busy_.begin(), busy_.end(), [](const Stream *stream) {
        const Operation &first = *stream->queue.front();
        if (!first.condition || first.reads.empty())
            return false;
        const Allocation *memory = find_reserved(first.reads.front().begin, 1);
        return memory && !memory->on_device();
    });
}

// If no operation can run now, returns whether the wait can never end: the streams wait for values
// in memory, which only this thread could write.
bool Scheduler::never_ends() const {
    const explore::Run &run = state().chooser.run();
    if (run.stopped || run.limits.count(text_of(Limit::Shared)))
        return false;
    bool any = false;
    for (const Stream *stream : busy_) {
        const Operation &first = *stream->queue.front();
        if (first.on_worker || (first.condition && !first.synchronizes))
            return false;
        any |= first.condition != nullptr;
    }
    return any;
}

void Scheduler::record_left() {
    std::vector<OperationPtr> left;
    for (const Stream *stream : busy_)
        left.insert(left.end(), stream->queue.begin(), stream->queue.end());
    std::sort(left.begin(), left.end(),
              [](auto &one, auto &other) { return one->number < other->number; });
    for (const OperationPtr &operation : left)
        state().steps.left(*operation);
}

void Scheduler::drain_by_choice(Lock &lock) {
    note_thread();
    for (;;) {
        std::vector<OperationPtr> ready = ready_operations();
        if (ready.empty())
            return;
        choose_next(lock, false, ready);
    }
}

} // namespace soft
