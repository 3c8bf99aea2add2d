#pragma once

#include "base/waiting.h"
#include "work/operation.h"

#include <atomic>
#include <functional>

namespace soft {

// Decides which operation runs when. All functions are called with the state lock held. The
// functions that take a Lock release it while an action runs.
class Scheduler {
  public:
    // Marks the operation, and all that must run before it, as required.
    void demand(const OperationPtr &target);
    // Appends the operation to its stream's queue.
    void enqueue(OperationPtr operation);
    // Runs work until all targets are done.
    void finish(Lock &lock, const std::vector<OperationPtr> &targets);
    // Runs all operations that the targets require and that can run now. Returns true if all
    // targets are done.
    bool advance(Lock &lock, const std::vector<OperationPtr> &targets);
    // Answers a query. Returns true if all targets are done. Otherwise it returns false a few
    // times, counted by `patience`; from then on each call runs work before it answers, so that
    // every polling loop ends.
    bool poll(Lock &lock, const std::vector<OperationPtr> &targets, int &patience);
    // Runs 0 to 3 operations. Driver calls begin with this under the random schedule.
    void step(Lock &lock);
    // Runs operations until none can run any more.
    void drain(Lock &lock);
    // Under the schedule `replay`: lets work run before the host uses a page that work in flight
    // uses, too. If the program `polls` the page, some work runs.
    void use(Lock &lock, const Range &page, bool writes, const std::string &words, bool polls);
    // Under the schedule `replay`, at the end of a run: records the operations that have not run.
    void record_left();
    // Drops the operations of the chosen streams. Running operations are not dropped, but a running
    // kernel ends after its current piece.
    void drop(const std::function<bool(const Stream &)> &chosen);
    // Keeps memory alive until all unfinished operations that use any of these bytes are done.
    void keep(const std::shared_ptr<void> &memory, uintptr_t begin, size_t bytes);
    // Waits until no operation of the chosen streams is running.
    void settle(Lock &lock, const std::function<bool(const Stream &)> &chosen);

    // Wakes the workers after the settings have changed.
    void reconsider();

    const std::vector<Stream *> &busy() const { return busy_; }
    uint64_t pending() const { return pending_; }

  private:
    enum class Reach { Released, Required, Everything };

    // The same under the schedule `replay`, where the chooser decides.
    bool finish_by_choice(Lock &lock, const std::vector<OperationPtr> &targets, bool blocks);
    bool answer_by_choice(Lock &lock, const std::vector<OperationPtr> &targets);
    void drain_by_choice(Lock &lock);
    std::vector<OperationPtr> ready_operations();
    bool choose_next(Lock &lock, bool host_can, const std::vector<OperationPtr> &ready);
    void run_all_pieces(Lock &lock, const OperationPtr &operation);
    void wait_for_worker(Lock &lock, const OperationPtr &operation);
    void note_idle(Lock &lock, const std::vector<OperationPtr> &targets);
    void runs_again();
    std::string words_for_wait(Lock &lock);
    bool never_ends() const;
    bool host_could_write() const;
    std::string text_of_deadlock(const std::string &words) const;
    void note_thread();

    OperationPtr pick(Reach reach, bool for_worker);
    static bool lets_next_begin(const Operation &operation);
    const OperationPtr &next_of(const Stream &stream) const;
    bool ready(Operation &operation);
    // Runs the operation in this thread or, if it is a host function, lets a worker run it.
    void perform(Lock &lock, const OperationPtr &operation);
    void run(Lock &lock, const OperationPtr &operation);
    void run_piece(Lock &lock, const OperationPtr &operation);
    uint64_t piece_length() const;
    void complete(Operation &operation);
    void pause(Lock &lock, long microseconds);
    void start_workers();
    void wake_worker();
    void work();
    static void *worker_main(void *);

    std::vector<Stream *> busy_; // streams with operations in their queue
    uint64_t pending_ = 0;
    uint64_t turns_ = 0;
    uint64_t conditions_ = 0; // queued operations that wait for a value in memory
    int waiting_ = 0;         // threads that wait for the signal progress_
    int sleeping_ = 0;        // workers that sleep until the signal work_
    int searching_ = 0;       // workers that are about to call pick()
    bool started_ = false;
    int early_answers_ = 0; // queries that have answered "not ready" since the last operation ran
    Clock::time_point idle_since_; // since when no work can run, or 0
    uint64_t threaded_run_ = 0;    // the run in which `thread_` has called
    const void *thread_ = nullptr;
    // True if the last pick() found more than one operation that was ready.
    bool several_ = false;
    std::atomic<uint64_t> generation_{0}; // incremented when there may be work for a worker
    Signal progress_;
    Signal work_;
};

} // namespace soft
