#include "api/call.h"
#include "api/state.h"

#include <pthread.h>
#include <signal.h>

// This file implements the driver's worker threads. Under the eager schedule they run all
// operations. Under the other schedules they run only host functions, and the scheduler decides
// when. They are detached and never end.

namespace soft {
namespace {

constexpr int worker_count = 4;
// How often a worker looks for work before it sleeps. The search takes some microseconds, so a
// worker does not fall asleep while a client submits one operation after the other.
constexpr int spins = 500;

} // namespace

void Scheduler::start_workers() {
    started_ = true;
    // Block all signals in the workers: the program's own threads handle them. A worker that runs a
    // host function may use guarded memory (memory/guarded.h).
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < worker_count; i++) {
        pthread_t thread;
        pthread_create(&thread, &attributes, worker_main, this);
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Scheduler::wake_worker() {
    if (!started_)
        start_workers();
    generation_.fetch_add(1, std::memory_order_relaxed);
    if (!searching_ && sleeping_)
        work_.notify_one();
}

void *Scheduler::worker_main(void *scheduler) {
    static_cast<Scheduler *>(scheduler)->work();
    return nullptr;
}

void Scheduler::work() {
    Lock lock(state().mutex);
    Backoff backoff;
    searching_++;
    for (;;) {
        bool eager = state().settings.schedule == Schedule::Eager;
        if (OperationPtr next = pick(eager ? Reach::Everything : Reach::Released, true)) {
            searching_--;
            if (several_)
                wake_worker();
            in_callback = next->on_worker;
            run(lock, next);
            in_callback = false;
            backoff.reset();
            searching_++;
            continue;
        }
        uint64_t seen = generation_.load(std::memory_order_relaxed);
        lock.unlock();
        for (int i = 0; i < spins && generation_.load(std::memory_order_relaxed) == seen; i++)
            relax();
        acquire(lock);
        if (generation_.load(std::memory_order_relaxed) != seen)
            continue;
        searching_--;
        sleeping_++;
        if (eager && conditions_)
            work_.wait_for(lock, backoff.next());
        else
            work_.wait(lock);
        sleeping_--;
        searching_++;
    }
}

} // namespace soft
