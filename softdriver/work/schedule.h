#pragma once

#include "base/waiting.h"
#include "work/operation.h"

#include <atomic>
#include <functional>

namespace soft {

// Decides what runs when. All functions are called with the state lock held; those that take a Lock
// release it while an action runs.
class Scheduler {
  public:
    // Appends the operation to its stream's queue.
    void enqueue(OperationPtr operation);
    // Runs work until all targets are done.
    void finish(Lock &lock, const std::vector<OperationPtr> &targets);
    // Runs all operations that the targets require and that can run now. Returns true if all
    // targets are done.
    bool advance(Lock &lock, const std::vector<OperationPtr> &targets);
    // Answers a query: returns true if all targets are done. Each call that returns false decreases
    // `patience`; when it is used up, the query itself runs work, so that every polling loop ends.
    bool poll(Lock &lock, const std::vector<OperationPtr> &targets, int &patience);
    // Called at each driver call. Under the random schedule it runs a random number of operations.
    void step(Lock &lock);
    // Runs everything that can run, until nothing is ready.
    void drain(Lock &lock);
    // Drops the operations of the chosen streams, except running ones. A running kernel ends after
    // its current piece.
    void drop(const std::function<bool(const Stream &)> &chosen);
    // Keeps memory alive for all unfinished operations that use any of these bytes.
    void keep(const std::shared_ptr<void> &memory, uintptr_t begin, size_t bytes);
    // Waits until no operation of the chosen streams is running.
    void settle(Lock &lock, const std::function<bool(const Stream &)> &chosen);

    // Wakes the workers after the settings have changed.
    void reconsider();

    const std::vector<Stream *> &busy() const { return busy_; }
    uint64_t pending() const { return pending_; }

  private:
    enum class Reach { Released, Required, Everything };

    OperationPtr pick(Reach reach, bool for_worker);
    bool ready(Operation &operation);
    // Runs the operation in this thread; a host function is handed to a worker.
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
    int waiting_ = 0;         // threads that wait for progress_
    int sleeping_ = 0;        // workers that wait for work_
    int searching_ = 0;       // workers that are about to call pick()
    bool started_ = false;
    // True if the last pick() found more than one ready operation.
    bool several_ = false;
    std::atomic<uint64_t> generation_{0}; // incremented when there may be work for a worker
    Signal progress_;
    Signal work_;
};

} // namespace soft
