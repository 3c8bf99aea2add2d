#include "work/schedule.h"
#include "api/call.h"

#include "api/state.h"
#include "work/tracer.h"

#include <algorithm>

namespace soft {

using explore::Choice;

namespace {

// The number of warp instructions in a piece, which take some 100 microseconds. If nothing else can
// run, a piece is longer: between two pieces, the threads that run a kernel wait for each other.
constexpr uint64_t usual_piece = 16384, longest_piece = 8 * usual_piece;
constexpr int pieces_of_a_query = 4;
// After this many pieces, a synchronization assumes that the kernel waits for other work.
constexpr int pieces_of_patience = 32;

} // namespace

void Scheduler::enqueue(OperationPtr operation) {
    Stream &stream = *operation->stream;
    bool first = stream.queue.empty();
    if (first) {
        stream.busy_index = busy_.size();
        busy_.push_back(&stream);
    }
    if (operation->condition)
        conditions_++;
    bool works = !operation->only_orders();
    operation->turn = ++turns_;
    if (state().chooser.replays()) {
        note_thread();
        if (!state().races.recording())
            state().chooser.stop(explore::Limit::RacesOff);
        state().steps.submitted(operation);
    }
    stream.queue.push_back(operation);
    pending_++;
    if (state().chooser.replays())
        state().host_uses.submitted(operation);
    if (works)
        close_managed(stream);
    // Only the first operation of a queue needs to wake a worker. The worker that finishes it
    // continues with the next.
    if (first && state().settings.schedule == Schedule::Eager)
        wake_worker();
}

bool Scheduler::ready(Operation &operation) {
    const Operation *predecessor = operation.predecessor.get();
    if (operation.progress == Progress::Paused)
        return operation.pieces->can_go_on() &&
               (!predecessor || predecessor->done() || !operation.pieces->waits());
    if (operation.progress != Progress::Queued)
        return false;
    for (const auto &wait : operation.waits)
        if (!wait->done() && (wait.get() != predecessor || !lets_next_begin(*wait)))
            return false;
    return !operation.condition || operation.condition();
}

// Returns whether another operation may begin before this one ends.
bool Scheduler::lets_next_begin(const Operation &operation) {
    return operation.progress == Progress::Paused && operation.pieces->lets_next_begin();
}

// Returns the operation of a stream that runs next. This is the first one, unless operations let
// the next one begin early: then it is the last of these that can go on.
const OperationPtr &Scheduler::next_of(const Stream &stream) const {
    const auto &queue = stream.queue;
    size_t next = 0, last = 0;
    while (last + 1 < queue.size() && queue[last + 1]->predecessor == queue[last] &&
           lets_next_begin(*queue[last])) {
        last++;
        if (queue[last]->progress == Progress::Running || !queue[last]->pieces->waits())
            next = last;
    }
    return queue[next];
}

OperationPtr Scheduler::pick(Reach reach, bool for_worker) {
    // A worker must not use the random generator: the moment at which a worker runs is not
    // reproducible, so a run could not be replayed.
    bool random = !for_worker && state().settings.schedule == Schedule::Random;
    OperationPtr best;
    uint64_t candidates = 0;
    for (Stream *stream : busy_) {
        const OperationPtr &first = next_of(*stream);
        if (reach == Reach::Released && !first->released)
            continue;
        if (reach == Reach::Required && stream->queue.front()->number > stream->required)
            continue;
        if (!for_worker && first->released)
            continue;
        if (!ready(*first))
            continue;
        candidates++;
        if (random ? state().chooser.draw(Choice::NextOperation, candidates) == 0
                   : !best || first->turn < best->turn)
            best = first;
    }
    several_ = candidates > 1;
    return best;
}

void Scheduler::perform(Lock &lock, const OperationPtr &operation) {
    if (operation->on_worker)
        operation->released = true;
    else
        run(lock, operation);
    if (operation->released || (!busy_.empty() && state().settings.schedule == Schedule::Eager))
        wake_worker();
}

// Returns the number of warp instructions in the next piece. Under the random schedule this number
// is random and usually small.
uint64_t Scheduler::piece_length() const {
    switch (state().settings.schedule) {
    case Schedule::Random:
        return 1 +
               state().chooser.draw(Choice::PieceLength,
                                    usual_piece >> state().chooser.draw(Choice::PieceLength, 8));
    case Schedule::Eager:
        return several_ ? usual_piece : longest_piece;
    default:
        return usual_piece;
    }
}

// Runs one piece of a kernel. If the kernel has not finished, its next piece comes after all other
// work that is ready.
void Scheduler::run_piece(Lock &lock, const OperationPtr &operation) {
    uint64_t steps = piece_length();
    lock.unlock();
    bool over = operation->pieces->advance(steps);
    acquire(lock);
    if (operation->cancelled) {
        complete(*operation);
        state().races.dropped(operation);
        return;
    }
    if (!over) {
        operation->progress = Progress::Paused;
        operation->turn = ++turns_;
        return;
    }
    Device &device = *operation->stream->owner->device;
    Outcome outcome = operation->pieces->end();
    std::vector<Range> writes = outcome.writes;
    writes.insert(writes.end(), outcome.updates.begin(), outcome.updates.end());
    std::vector<Range> reads = outcome.reads;
    reads.insert(reads.end(), outcome.early_reads.begin(), outcome.early_reads.end());
    for (const auto *early : {&outcome.early_writes, &outcome.early_updates})
        writes.insert(writes.end(), early->begin(), early->end());
    if (!outcome.in_parts)
        use_pages(device, reads, writes);
    if (state().chooser.replays())
        state().steps.ran(*operation, &outcome);
    complete(*operation);
    state().races.ended(operation);
    state().races.known(operation, outcome);
    if (outcome.status)
        lose_device(device, outcome.status);
}

void Scheduler::run(Lock &lock, const OperationPtr &operation) {
    if (operation->progress == Progress::Paused) {
        operation->progress = Progress::Running;
        run_piece(lock, operation);
        return;
    }
    if (operation->action || operation->pieces)
        if (CUresult status = state().settings.faults.strike_operation()) {
            if (state().chooser.replays()) {
                Outcome failed;
                failed.status = status;
                state().steps.ran(*operation, &failed);
            }
            lose_device(*operation->stream->owner->device, status); // drops this operation, too
            return;
        }
    operation->progress = Progress::Running;
    state().races.started(operation);
    trace_start(*operation);
    if (operation->pieces) {
        run_piece(lock, operation);
        return;
    }
    if (operation->action) {
        if (operation->on_worker)
            // The host function may access managed memory that no other stream can be using.
            open_managed();
        lock.unlock();
        operation->action();
        acquire(lock);
        if (operation->uses_pages)
            use_pages(*operation->stream->owner->device, operation->reads, operation->writes);
        if (operation->on_worker && operation->stream->queue.size() > 1)
            close_managed(*operation->stream);
    }
    if (state().chooser.replays())
        state().steps.ran(*operation, nullptr);
    complete(*operation);
    state().races.ended(operation);
}

void Scheduler::complete(Operation &operation) {
    trace_end(operation);
    operation.finished = Clock::now();
    operation.progress = Progress::Done;
    operation.waits.clear();
    operation.predecessor = nullptr;
    operation.action = nullptr;
    operation.pieces = nullptr;
    // Destroy these objects only after the operation has left its queue: releasing memory searches
    // the queues for operations that use the memory.
    std::vector<std::shared_ptr<void>> kept = std::move(operation.kept);
    if (operation.condition)
        conditions_--;
    operation.condition = nullptr;
    pending_--;
    StreamPtr stream = std::move(operation.stream);
    auto &queue = stream->queue;
    queue.erase(std::find_if(queue.begin(), queue.end(),
                             [&](auto &queued) { return queued.get() == &operation; }));
    if (stream->queue.empty()) {
        busy_.back()->busy_index = stream->busy_index;
        busy_[stream->busy_index] = busy_.back();
        busy_.pop_back();
    }
    if (waiting_)
        progress_.notify_all();
}

void Scheduler::pause(Lock &lock, long microseconds) {
    waiting_++;
    progress_.wait_for(lock, microseconds);
    waiting_--;
}

void Scheduler::demand(const OperationPtr &target) {
    std::vector<Operation *> todo{target.get()};
    while (!todo.empty()) {
        Operation *operation = todo.back();
        todo.pop_back();
        if (operation->done())
            continue;
        Stream &stream = *operation->stream;
        uint64_t before = stream.required;
        if (before >= operation->number)
            continue;
        stream.required = operation->number;
        // The queue is sorted by number. A binary search makes repeated queries of a long queue
        // cheap.
        auto queued = std::upper_bound(
            stream.queue.begin(), stream.queue.end(), before,
            [](uint64_t number, const auto &other) { return number < other->number; });
        for (; queued != stream.queue.end() && (*queued)->number <= operation->number; ++queued)
            for (const auto &wait : (*queued)->waits)
                todo.push_back(wait.get());
    }
}

void Scheduler::finish(Lock &lock, const std::vector<OperationPtr> &targets) {
    if (state().chooser.replays()) {
        finish_by_choice(lock, targets, true);
        return;
    }
    for (const auto &target : targets)
        demand(target);
    Backoff backoff;
    int pieces = 0;
    while (!all_done(targets)) {
        // If no required operation can run, or a kernel runs through many pieces, the stream may be
        // waiting for a flag that other work sets. So also run other work.
        OperationPtr next = pick(Reach::Required, false);
        bool stalled = next ? pieces > pieces_of_patience && pieces % 2 : backoff.slept();
        if (stalled)
            if (OperationPtr other = pick(Reach::Everything, false))
                next = other;
        if (next) {
            perform(lock, next);
            pieces += stalled || !next->done();
            continue;
        }
        pause(lock, backoff.next());
    }
    open_managed();
}

bool Scheduler::advance(Lock &lock, const std::vector<OperationPtr> &targets) {
    for (const auto &target : targets)
        demand(target);
    for (int pieces = 0; !all_done(targets);) {
        // A kernel that does not end may be waiting for a flag that other work or the caller sets.
        // So after a few pieces, run one operation of any stream and return.
        bool last = pieces == pieces_of_a_query;
        OperationPtr next = pick(last ? Reach::Everything : Reach::Required, false);
        if (!next)
            return false;
        perform(lock, next);
        if (last)
            return all_done(targets);
        pieces += !next->done();
    }
    open_managed();
    return true;
}

bool Scheduler::poll(Lock &lock, const std::vector<OperationPtr> &targets, int &patience) {
    if (state().chooser.replays() && !in_callback)
        return answer_by_choice(lock, targets);
    if (all_done(targets)) {
        patience = 0;
        open_managed();
        return true;
    }
    if (in_callback)
        return false;
    if (patience == 0)
        patience = 2 + static_cast<int>(state().chooser.draw(Choice::Patience, 4));
    if (patience > 1) {
        patience--;
        return false;
    }
    return advance(lock, targets);
}

void Scheduler::step(Lock &lock) {
    for (uint64_t count = state().chooser.draw(Choice::StepsOfCall, 4); count > 0; count--) {
        OperationPtr next = pick(Reach::Everything, false);
        if (!next)
            return;
        perform(lock, next);
    }
}

void Scheduler::drain(Lock &lock) {
    if (state().chooser.replays())
        return drain_by_choice(lock);
    auto on_its_way = [&] {
        return std::any_of(busy_.begin(), busy_.end(), [&](Stream *stream) {
            const Operation &first = *next_of(*stream);
            return first.released || first.progress == Progress::Running;
        });
    };
    for (;;) {
        if (OperationPtr next = pick(Reach::Everything, false)) {
            perform(lock, next);
        } else if (on_its_way()) {
            pause(lock, 1000);
        } else {
            return;
        }
    }
}

void Scheduler::drop(const std::function<bool(const Stream &)> &chosen) {
    std::vector<OperationPtr> dropped;
    for (Stream *stream : busy_)
        if (chosen(*stream))
            for (const auto &operation : stream->queue) {
                if (operation->progress == Progress::Running)
                    operation->cancelled = operation->pieces != nullptr;
                else
                    dropped.push_back(operation);
            }
    if (state().chooser.replays())
        state().steps.dropped(dropped);
    for (const auto &operation : dropped) {
        complete(*operation);
        state().races.dropped(operation);
    }
}

void Scheduler::keep(const std::shared_ptr<void> &memory, uintptr_t begin, size_t bytes) {
    auto inside = [all = Range{begin, bytes}](const Range &range) { return range.overlaps(all); };
    for (Stream *stream : busy_)
        for (const auto &operation : stream->queue) {
            const auto &reads = operation->reads, &writes = operation->writes;
            if (std::any_of(reads.begin(), reads.end(), inside) ||
                std::any_of(writes.begin(), writes.end(), inside))
                operation->kept.push_back(memory);
        }
}

void Scheduler::settle(Lock &lock, const std::function<bool(const Stream &)> &chosen) {
    auto running = [&] {
        return std::any_of(busy_.begin(), busy_.end(), [&](Stream *stream) {
            return chosen(*stream) && next_of(*stream)->progress == Progress::Running;
        });
    };
    Backoff backoff;
    while (running()) {
        pause(lock, backoff.next());
    }
}

void Scheduler::reconsider() {
    generation_++;
    work_.notify_all();
}

} // namespace soft
