#include "api/logs.h"

#include "api/call.h"
#include "base/notes.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <deque>
#include <mutex>
#include <pthread.h>

namespace soft {

std::atomic<bool> logs_are_due{false};

namespace {

enum class Level { Error, Warning };

constexpr size_t most_messages = 100; // as on an H200; cuda.h states no number
constexpr size_t most_bytes = 25600;  // size of all kept messages, as cuda.h says
// The first line of a dump if earlier messages are missing, as real drivers write it.
constexpr const char *cut = "Log buffer has rolled over since the previous dump. The oldest "
                            "messages will be missing\n";

struct Message {
    Level level;
    std::string text; // a line: the head, the text for callbacks, and a newline
    size_t head;      // the length of the head
};

struct Listener {
    CUlogsCallback function;
    void *data;
    uintptr_t handle;
};

struct Log {
    std::mutex guard; // guards all fields below except `telling`
    std::deque<Message> messages;
    size_t bytes = 0;
    unsigned first = 0;  // the number of messages.front(); numbers wrap
    unsigned untold = 0; // the number of the first message that callbacks have not received
    std::vector<Listener> callbacks;
    uintptr_t next_handle = 1;
    // Held while callbacks run, so that no callback runs after it was unregistered. The mutex is
    // recursive, because a callback may unregister itself. In this case NVIDIA's driver
    // (580.159.04) crashes; when a callback makes any other call, that driver hangs.
    std::recursive_mutex telling;

    unsigned next() const { return first + static_cast<unsigned>(messages.size()); }
    // Returns the index of the first kept message whose number is not below this one.
    size_t index_of(unsigned number) const {
        unsigned ahead = next() - number;
        return ahead > messages.size() ? 0 : messages.size() - ahead;
    }
};

// Never destroyed, because workers and late destructors of the program may still use it.
Log &the_log() {
    static Log *log = new Log;
    return *log;
}

thread_local bool in_log_callback = false;

// Returns what precedes a message in a dump: the time, the thread and the level, as real drivers
// write them.
std::string head_of(Level level) {
    timespec now = {};
    tm local = {};
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    char time[16] = {}, head[80] = {};
    std::strftime(time, sizeof time, "%H:%M:%S", &local);
    std::snprintf(head, sizeof head, "[%s.%03ld][%lu][CUDA][%c] ", time, now.tv_nsec / 1000000,
                  static_cast<unsigned long>(pthread_self()), level == Level::Error ? 'E' : 'W');
    return head;
}

void append(Level level, const std::string &text) {
    std::string head = head_of(level);
    Log &log = the_log();
    std::lock_guard<std::mutex> lock(log.guard);
    log.messages.push_back({level, (head + text).substr(0, most_bytes - 1) + "\n", head.size()});
    log.bytes += log.messages.back().text.size();
    for (; log.messages.size() > most_messages || log.bytes > most_bytes; log.first++) {
        log.bytes -= log.messages.front().text.size();
        log.messages.pop_front();
    }
    logs_are_due = !log.callbacks.empty();
}

// Returns the texts of the newest messages: as many as fit into `room` bytes, and none before
// `begin`. Sets `begin` to the first of these messages.
std::string last_messages(const Log &log, size_t &begin, size_t room) {
    size_t from = log.messages.size(), bytes = 0;
    while (from > begin && bytes + log.messages[from - 1].text.size() <= room)
        bytes += log.messages[--from].text.size();
    begin = from;
    std::string text;
    for (; from < log.messages.size(); from++)
        text += log.messages[from].text;
    return text;
}

// Returns the messages from the iterator on, and moves it to the end. A null iterator stands for
// the first message of the process. If some of these messages are not kept any more or do not fit,
// the text begins with a line that says so. Returns false if there are messages but none fits.
bool take(CUlogIterator *iterator, size_t room, std::string &text) {
    Log &log = the_log();
    std::lock_guard<std::mutex> lock(log.guard);
    unsigned asked = iterator ? *iterator : 0;
    size_t first = log.index_of(asked), begin = first;
    // Numbers wrap, so the difference says which is older.
    bool lost = static_cast<int>(log.first - asked) > 0;
    text = last_messages(log, begin, room);
    if (begin > first || lost) {
        size_t head = std::strlen(cut);
        begin = first;
        text = last_messages(log, begin, room > head ? room - head : 0);
        if (!text.empty())
            text.insert(0, cut);
    }
    if (text.empty() && first < log.messages.size())
        return false;
    if (iterator)
        *iterator = log.next();
    return true;
}

std::vector<Message> take_untold() {
    Log &log = the_log();
    std::lock_guard<std::mutex> lock(log.guard);
    auto begin = log.messages.begin() + static_cast<long>(log.index_of(log.untold));
    std::vector<Message> found(begin, log.messages.end());
    log.untold = log.next();
    logs_are_due = false;
    return found;
}

std::vector<Listener> registered() {
    Log &log = the_log();
    std::lock_guard<std::mutex> lock(log.guard);
    return log.callbacks;
}

bool is_registered(uintptr_t handle) {
    auto all = registered();
    return std::any_of(all.begin(), all.end(),
                       [&](const Listener &callback) { return callback.handle == handle; });
}

void tell(Message &message) {
    for (const Listener &callback : registered())
        if (is_registered(callback.handle)) // an earlier callback may have unregistered it
            callback.function(callback.data, static_cast<CUlogLevel>(message.level),
                              message.text.data() + message.head,
                              message.text.size() - message.head - 1);
}

// Adds an event, which is also in the report, to the log. Forked children have no log: see
// log_failed_call().
void append_note(Note what, const std::string &text) {
    if (what == Note::Forked || in_forked_child())
        return;
    try {
        append(what == Note::Race || what == Note::Hazard || what == Note::Warning ? Level::Warning
                                                                                   : Level::Error,
               text);
    } catch (const std::bad_alloc &) {
    }
}

[[gnu::constructor]] void begin_log() { add_reader(append_note); }

} // namespace

void log_failed_call(const char *symbol, int status) noexcept {
    if (in_forked_child()) // another thread may have held the lock when the process was forked
        return;
    try {
        const char *name = error_name(status);
        append(Level::Error, "Returning " + std::to_string(status) + " (" +
                                 (name ? name : "unknown") + ") from " + symbol);
    } catch (const std::bad_alloc &) {
    }
}

// Messages that are added while callbacks run stay in the log, but callbacks do not receive them:
// otherwise a callback whose own calls fail would be called forever.
void tell_callbacks() noexcept {
    if (in_log_callback || in_forked_child())
        return;
    try {
        std::lock_guard<std::recursive_mutex> lock(the_log().telling);
        in_log_callback = true;
        for (Message &message : take_untold())
            tell(message);
        take_untold();
    } catch (const std::bad_alloc &) {
    }
    in_log_callback = false;
}

SOFT_API(cuLogsRegisterCallback,
         (CUlogsCallback function, void *data, CUlogsCallbackHandle *handle),
         (function, data, handle)) {
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    Log &log = the_log();
    std::lock_guard<std::mutex> lock(log.guard);
    if (log.callbacks.empty())
        log.untold = log.next(); // callbacks do not receive earlier messages
    log.callbacks.push_back({function, data, log.next_handle});
    if (handle)
        *handle = reinterpret_cast<CUlogsCallbackHandle>(log.next_handle);
    log.next_handle++;
    return CUDA_SUCCESS;
}

SOFT_API(cuLogsUnregisterCallback, (CUlogsCallbackHandle handle), (handle)) {
    // Callbacks may be calling the driver, so it must not be locked while this waits for them.
    if (call.lock.owns_lock())
        call.lock.unlock();
    Log &log = the_log();
    std::lock_guard<std::recursive_mutex> wait(log.telling);
    std::lock_guard<std::mutex> lock(log.guard);
    auto found = std::find_if(log.callbacks.begin(), log.callbacks.end(), [&](const Listener &one) {
        return one.handle == reinterpret_cast<uintptr_t>(handle);
    });
    if (found == log.callbacks.end())
        return CUDA_ERROR_INVALID_VALUE;
    log.callbacks.erase(found);
    return CUDA_SUCCESS;
}

// Real drivers ignore the flags, too, although cuda.h says that they must be 0.
SOFT_API(cuLogsCurrent, (CUlogIterator * iterator, [[maybe_unused]] unsigned flags),
         (iterator, flags)) {
    if (!iterator)
        return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> lock(the_log().guard);
    *iterator = the_log().next();
    return CUDA_SUCCESS;
}

SOFT_API(cuLogsDumpToMemory, (CUlogIterator * iterator, char *buffer, size_t *size, unsigned flags),
         (iterator, buffer, size, flags)) {
    if (!buffer || !size || !*size || flags)
        return CUDA_ERROR_INVALID_VALUE;
    std::string text;
    bool fits = take(iterator, *size - 1, text);
    std::memcpy(buffer, text.c_str(), text.size() + 1);
    *size = text.size();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuLogsDumpToFile, (CUlogIterator * iterator, const char *path, unsigned flags),
         (iterator, path, flags)) {
    if (!path || flags)
        return CUDA_ERROR_INVALID_VALUE;
    std::FILE *file = std::fopen(path, "we");
    if (!file)
        return CUDA_ERROR_INVALID_VALUE;
    std::string text;
    take(iterator, most_bytes + std::strlen(cut), text);
    bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    return !std::fclose(file) && written ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

} // namespace soft
