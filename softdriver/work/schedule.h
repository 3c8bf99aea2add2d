#pragma once

#include "base/waiting.h"
#include "work/operation.h"

#include <atomic>
#include <functional>

namespace soft {

// Decides what runs when. All functions are called with the state lock held; those that take it as
// an argument drop it while an action runs.
class Scheduler {
  public:
    // Appends to the operation's stream.
    void enqueue(OperationPtr operation);
    // Returns when all targets are done.
    void finish(Lock &lock, const std::vector<OperationPtr> &targets);
    // Runs what the targets require and what can run now; true if they are all done.
    bool advance(Lock &lock, const std::vector<OperationPtr> &targets);
    // Answers a query: true if all targets are done. Not-ready answers use up the asker's patience;
    // after that they force progress, so that every polling loop ends.
    bool poll(Lock &lock, const std::vector<OperationPtr> &targets, int &patience);
    // The random schedule's own progress, at each entry into the driver.
    void step(Lock &lock);
    // Runs everything that can run, to its end.
    void drain(Lock &lock);
    // Drops what has not started of the streams for which the predicate holds.
    void drop(const std::function<bool(const Stream &)> &chosen);
    // Keeps memory for the operations that have not finished and touch it.
    void keep(const std::shared_ptr<void> &memory, uintptr_t begin, size_t bytes);
    // Waits until nothing that has started is still running there.
    void settle(Lock &lock, const std::function<bool(const Stream &)> &chosen);

    // The schedule has changed.
    void reconsider();

    const std::vector<Stream *> &busy() const { return busy_; }
    uint64_t pending() const { return pending_; }

  private:
    enum class Reach { Released, Required, Everything };

    OperationPtr pick(Reach reach, bool for_worker);
    bool ready(Operation &operation);
    // Runs it here, or hands it to a worker.
    void perform(Lock &lock, const OperationPtr &operation);
    void run(Lock &lock, const OperationPtr &operation);
    void run_piece(Lock &lock, const OperationPtr &operation);
    uint64_t piece_length() const;
    void complete(Operation &operation);
    void pause(Lock &lock, long microseconds);
    void demand(const OperationPtr &target);
    void start_workers();
    void wake_worker();
    void work();
    static void *worker_main(void *);

    std::vector<Stream *> busy_; // streams with operations in their queue
    uint64_t pending_ = 0;
    uint64_t turns_ = 0;
    uint64_t conditions_ = 0; // queued operations that wait for a value in memory
    int waiting_ = 0;         // threads in progress_.wait
    int sleeping_ = 0;        // workers in work_.wait
    int searching_ = 0;       // workers that are about to look again
    bool started_ = false;
    bool several_ = false;                // the last pick() had a choice
    std::atomic<uint64_t> generation_{0}; // changes when there may be something for a worker
    Signal progress_;
    Signal work_;
};

} // namespace soft
