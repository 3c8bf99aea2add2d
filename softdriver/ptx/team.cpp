#include "ptx/team.h"

#include "base/waiting.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

namespace soft::ptx {

namespace {

// The number of times that a helper looks for work before it sleeps. Looking again is worthwhile,
// because the pieces of a kernel follow each other within microseconds.
constexpr int spins = 300;

struct Job {
    const std::function<void(unsigned)> &part;
    const unsigned count;
    unsigned taken = 0, finished = 0;
};

// The helper threads. They are detached and never end, so the team is never destroyed.
class Team {
  public:
    void run(Job &job) {
        Lock lock(mutex_);
        recruit(job.count - 1);
        jobs_.push_back(&job);
        generation_.fetch_add(1, std::memory_order_relaxed);
        if (sleeping_)
            work_.notify_all();
        while (job.taken < job.count)
            run_part(lock, job);
        while (job.finished < job.count)
            finished_.wait(lock);
    }

  private:
    // Creates helper threads until `wanted` of them exist. If the system refuses one, the existing
    // threads do all the work.
    void recruit(unsigned wanted) {
        sigset_t all, before;
        sigfillset(&all);
        // Helpers inherit this mask, so only the program's threads handle signals.
        pthread_sigmask(SIG_SETMASK, &all, &before);
        for (; helpers_ < std::min(wanted, most_processors); helpers_++) {
            pthread_t thread;
            if (pthread_create(&thread, nullptr, helper_main, this))
                break;
            pthread_detach(thread);
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    // Runs the next part of a job, and releases the lock meanwhile.
    void run_part(Lock &lock, Job &job) {
        unsigned number = job.taken++;
        if (job.taken == job.count)
            jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
        lock.unlock();
        job.part(number);
        soft::acquire(lock);
        if (++job.finished == job.count)
            finished_.notify_all();
    }

    void help() {
        Lock lock(mutex_);
        for (;;) {
            if (!jobs_.empty()) {
                run_part(lock, *jobs_.front());
                continue;
            }
            uint64_t seen = generation_.load(std::memory_order_relaxed);
            lock.unlock();
            for (int i = 0; i < spins && generation_.load(std::memory_order_relaxed) == seen; i++)
                relax();
            soft::acquire(lock);
            if (generation_.load(std::memory_order_relaxed) != seen)
                continue;
            sleeping_++;
            work_.wait(lock);
            sleeping_--;
        }
    }

    static void *helper_main(void *team) {
        static_cast<Team *>(team)->help();
        return nullptr;
    }

    std::mutex mutex_; // guards all other members
    Signal work_, finished_;
    std::deque<Job *> jobs_; // jobs that have parts which no thread has taken
    unsigned helpers_ = 0, sleeping_ = 0;
    std::atomic<uint64_t> generation_{0}; // incremented when there is a new job
};

} // namespace

void run_together(unsigned count, const std::function<void(unsigned)> &part) {
    static Team *const team = new Team;
    Job job{part, count};
    team->run(job);
}

unsigned usable_processors() {
    static const unsigned number = [] {
        cpu_set_t mine;
        int found = sched_getaffinity(0, sizeof mine, &mine) ? 1 : CPU_COUNT(&mine);
        return std::clamp(unsigned(found), 1u, most_processors);
    }();
    return number;
}

} // namespace soft::ptx
