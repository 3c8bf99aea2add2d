#include "stream/shared_event.h"
#include "api/call.h"
#include "api/state.h"

#include <cstring>
#include <map>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

// Interprocess events. Each record has a number, and is unfinished as long as an entry in the
// event's page contains this number. If the process of an unfinished record ends, the record stays
// unfinished forever, as on a GPU. Under the lazy and the random schedule, work runs only when it
// is needed. So a process that needs a record of another process sets a flag in the entry, and a
// thread in the other process looks for such flags.

namespace soft {

struct SharedPage {
    struct Entry {
        std::atomic<uint64_t> number; // number of an unfinished record, or 0
        std::atomic<uint32_t> needed;
    };
    static constexpr uint64_t count = 160;

    std::atomic<uint64_t> id; // id of the event, or 0 if it was destroyed
    std::atomic<uint64_t> records;
    std::atomic<uint64_t> latest; // record, or 0
    uint64_t unused;
    Entry entries[count];
};

namespace {

constexpr uint64_t event_magic = 0x3130544e45435543; // "CUCENT01"
constexpr const char *file_name = "cudadrv-events";
constexpr size_t event_bytes = 4096; // a page
static_assert(sizeof(SharedPage) <= event_bytes, "an event has one page");
constexpr uint64_t max_pages = 4096; // events of one process
constexpr uint64_t no_entry = SharedPage::count;

using Entry = SharedPage::Entry;

struct EventHandle {
    uint64_t magic;
    uint32_t pid;
    int32_t file;
    uint64_t start, index, id;
    uint64_t unused[3];
};
static_assert(sizeof(EventHandle) == sizeof(CUipcEventHandle), "the size of the driver's handles");

// A record: its number, and the index of its entry in the lowest byte.
uint64_t number_of(uint64_t record) { return record >> 8; }

// This process's file, and which of its pages are free.
struct EventPages {
    int file = -1;
    uint64_t next = 0;
    std::vector<uint64_t> free;
};

EventPages &event_pages() {
    static auto *pages = new EventPages;
    return *pages;
}

SharedPage *map_page(int file, uint64_t index) {
    void *page = mmap(nullptr, event_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                      static_cast<off_t>(index * event_bytes));
    return page == MAP_FAILED ? nullptr : static_cast<SharedPage *>(page);
}

// The last records of interprocess events that this process has made, one of each stream. Another
// process may have waited for them before it recorded an event. So a wait for that event counts as
// a wait for these records, too.
std::map<const RaceTrack *, OperationPtr> &told() {
    static auto *records = new std::map<const RaceTrack *, OperationPtr>;
    return *records;
}

void tell(const OperationPtr &record) {
    static size_t sweep_at = 256;
    auto &records = told();
    if (records.size() >= sweep_at) {
        // Keep a record that is done until the host knows that it is done: only then is all later
        // work ordered after it.
        for (auto next = records.begin(); next != records.end();)
            next = state().races.knows(*next->second) ? records.erase(next) : std::next(next);
        sweep_at = std::max<size_t>(256, 2 * records.size());
    }
    records[record->mark.track.get()] = record;
}

// Unfinished records of this process, which other processes may need.
struct Offered {
    std::weak_ptr<Operation> operation;
    std::shared_ptr<SharedEvent> event;
    Entry *entry;
};

class Watcher {
  public:
    void add(Offered offered) {
        offered_.push_back(std::move(offered));
        if (!started_)
            start();
        else
            signal_.notify_one();
    }

  private:
    void start() {
        started_ = true;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_t thread;
        if (pthread_create(&thread, nullptr, main, this) == 0)
            pthread_detach(thread);
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    static void *main(void *watcher) {
        static_cast<Watcher *>(watcher)->work();
        return nullptr;
    }

    // Never ends.
    void work() {
        Lock lock(state().mutex);
        for (;;) {
            std::vector<OperationPtr> needed;
            for (size_t i = offered_.size(); i-- > 0;) {
                OperationPtr operation = offered_[i].operation.lock();
                if (!operation || operation->done())
                    offered_.erase(offered_.begin() + static_cast<std::ptrdiff_t>(i));
                else if (offered_[i].entry->needed)
                    needed.push_back(std::move(operation));
            }
            if (!needed.empty())
                state().scheduler.finish(lock, needed);
            else if (offered_.empty())
                signal_.wait(lock);
            else
                signal_.wait_for(lock, 1000);
        }
    }

    std::vector<Offered> offered_;
    bool started_ = false;
    Signal signal_;
};

Watcher &watcher() {
    static auto *watcher = new Watcher;
    return *watcher;
}

} // namespace

std::shared_ptr<SharedEvent> SharedEvent::create() {
    EventPages &all = event_pages();
    if (all.file < 0)
        all.file = create_shared_file(file_name, max_pages * event_bytes);
    if (all.file < 0 || (all.free.empty() && all.next == max_pages))
        return nullptr;
    if (all.free.empty())
        all.free.push_back(all.next++);
    std::shared_ptr<SharedEvent> event(new SharedEvent);
    event->page_ = map_page(all.file, all.free.back());
    if (!event->page_)
        return nullptr;
    event->index_ = all.free.back();
    all.free.pop_back();
    event->created_ = true;
    event->id_ = state().new_id();
    std::memset(static_cast<void *>(event->page_), 0, event_bytes);
    event->page_->id = event->id_;
    return event;
}

SharedEvent::~SharedEvent() {
    if (created_) {
        page_->id = 0;
        event_pages().free.push_back(index_);
    }
    if (page_)
        munmap(static_cast<void *>(page_), event_bytes);
}

// Returns the index of a free entry, or no_entry.
uint64_t SharedEvent::find_room() {
    for (uint64_t i = 0; i < SharedPage::count; i++)
        if (!page_->entries[i].number)
            return i;
    return no_entry;
}

bool SharedEvent::has_room() { return page_->id == id_ && find_room() != no_entry; }

void SharedEvent::note_record(const OperationPtr &operation) {
    uint64_t index = find_room();
    if (index == no_entry)
        return;
    uint64_t number = ++page_->records;
    Entry &entry = page_->entries[index];
    entry.needed = 0;
    entry.number = number;
    noted_ = number << 8 | index;
    page_->latest = noted_;
    // The record is complete when its operation has run, or was dropped.
    std::shared_ptr<SharedEvent> event = shared_from_this();
    operation->kept.emplace_back(nullptr, [event, &entry, number](void *) {
        uint64_t expected = number;
        entry.number.compare_exchange_strong(expected, 0);
    });
    watcher().add({operation, event, &entry});
    if (operation->mark.track)
        tell(operation);
}

bool SharedEvent::recorded_elsewhere() const { return page_->latest != noted_; }

bool SharedEvent::done(uint64_t record, bool needed) const {
    uint64_t index = record & 0xff;
    if (!record || index >= SharedPage::count || page_->id != id_)
        return true;
    Entry &entry = page_->entries[index];
    if (entry.number != number_of(record))
        return true;
    if (needed)
        entry.needed = 1;
    return false;
}

bool SharedEvent::latest_done(bool needed) const { return done(page_->latest, needed); }

std::function<bool()> SharedEvent::when_done() const {
    uint64_t record = page_->latest;
    return [event = shared_from_this(), record] { return event->done(record, true); };
}

bool SharedEvent::write_handle(CUipcEventHandle &handle) const {
    if (!created_)
        return false;
    ProcessId here = this_process();
    EventHandle made = {};
    made.magic = event_magic;
    made.pid = here.pid;
    made.file = event_pages().file;
    made.start = here.start;
    made.index = index_;
    made.id = id_;
    std::memcpy(&handle, &made, sizeof(made));
    return true;
}

CUresult SharedEvent::open(const CUipcEventHandle &handle, std::shared_ptr<SharedEvent> &event) {
    EventHandle given;
    std::memcpy(&given, &handle, sizeof(given));
    ProcessId owner{given.pid, given.start};
    if (given.magic != event_magic || given.index >= max_pages || !given.id)
        return CUDA_ERROR_MAP_FAILED;
    if (owner == this_process())
        return CUDA_ERROR_INVALID_CONTEXT; // a process cannot open its own event
    int file = open_shared_file(owner, given.file, file_name, max_pages * event_bytes);
    if (file < 0)
        return CUDA_ERROR_MAP_FAILED;
    event = std::shared_ptr<SharedEvent>(new SharedEvent);
    event->page_ = map_page(file, given.index);
    close(file);
    if (!event->page_)
        return CUDA_ERROR_MAP_FAILED;
    event->id_ = given.id;
    return event->page_->id == given.id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult follow_other_process(Event &event) {
    if (!event.shared || !event.shared->recorded_elsewhere() || event.capture)
        return CUDA_SUCCESS;
    StreamPtr stream = create_stream(event.context, StreamKind::Created, CU_STREAM_NON_BLOCKING, 0);
    for (const auto &record : told())
        state().races.passed(*stream, record.second);
    auto operation = std::make_shared<Operation>();
    operation->condition = event.shared->when_done();
    if (CUresult status = submit(*stream, operation))
        return status;
    event.recorded = std::move(operation);
    event.patience = 0;
    return CUDA_SUCCESS;
}

void learn_told() {
    std::vector<OperationPtr> done;
    for (const auto &record : told())
        if (record.second->done())
            done.push_back(record.second);
    state().races.learn(done);
}

// ---- the functions ----

SOFT_API(cuIpcGetEventHandle, (CUipcEventHandle * handle, CUevent given), (handle, given)) {
    EventPtr event;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = find_event(given, event))
        return status;
    if (!event->shared || !event->shared->write_handle(*handle))
        return CUDA_ERROR_INVALID_HANDLE;
    state().chooser.limit(explore::Limit::Shared);
    return CUDA_SUCCESS;
}

SOFT_API(cuIpcOpenEventHandle, (CUevent * handle, CUipcEventHandle given), (handle, given)) {
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<SharedEvent> shared;
    if (CUresult status = SharedEvent::open(given, shared))
        return status;
    EventPtr event = create_event(call.context, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    event->shared = std::move(shared);
    state().chooser.limit(explore::Limit::Shared);
    *handle = event->handle;
    return CUDA_SUCCESS;
}

} // namespace soft
