#include "api/report.h"

#include "api/call.h"
#include "api/counts.h"
#include "api/state.h"
#include "base/json.h"
#include "base/notes.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace soft {

std::atomic<bool> report_is_due{false};
std::atomic<std::atomic<uint64_t> *> report_numbers{nullptr};

namespace {

using namespace std::chrono_literals;

// A program may repeat a mistake forever, and nobody reads more lines than this.
constexpr uint64_t most_lines = 500;

constexpr const char *note_names[] = {"refused_image", "forked", "kernel_fault",
                                      "data_race",     "hazard", "warning"};

// The order of report_numbers: calls, operations that have not run, objects by kind, and, from
// fixed indices on, calls of functions that are not implemented, and calls with arguments that are
// not supported.
constexpr size_t pending_place = 1, objects_place = 2, unsupported_place = 32;
constexpr size_t refused_place = unsupported_place + 992, most_refused = 256;
constexpr size_t most_numbers = refused_place + most_refused;
static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));

// Guards the two variables below, and is held while a line is written. A fork locks this mutex, so
// that the child can write its own report.
std::mutex guard;
std::string *folder = nullptr; // where reports are; null: nowhere
std::string *path = nullptr;   // the file of this process, once it has called the driver
std::array<std::atomic<uint64_t>, std::size(note_names)> noted;
std::map<std::string, size_t> *refused = nullptr; // places of calls that are not supported

template <class Object> void forget(Object *&object) {
    delete object;
    object = nullptr;
}

// Opens the file anew for each line, because a program may close all files that it has not opened
// itself, and then open other files under the same descriptors.
void write_line(const std::string &line) {
    int file = open(path->c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    std::string rest = line + "\n";
    while (file >= 0 && !rest.empty()) {
        ssize_t written = write(file, rest.data(), rest.size());
        if (written < 0 && errno != EINTR)
            break; // a full disk, for example: the program must not suffer for its report
        rest.erase(0, written < 0 ? 0 : static_cast<size_t>(written));
    }
    if (file >= 0)
        close(file);
}

// The arguments with which the process was started, as a JSON array.
std::string command_line() {
    std::string all, json;
    int source = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    char part[4096];
    for (ssize_t got = 0; source >= 0 && (got = read(source, part, sizeof part)) > 0;)
        all.append(part, static_cast<size_t>(got));
    if (source >= 0)
        close(source);
    for (size_t begin = 0, end; (end = all.find('\0', begin)) != std::string::npos; begin = end + 1)
        json += (begin ? "," : "") + quoted(all.substr(begin, end - begin));
    return "[" + json + "]";
}

// Creates the report file of this process. The system reuses process numbers, so the file gets the
// first name that is free. Requires the guard.
bool make_file() {
    for (int number = 0;; number++) {
        std::string name =
            *folder + "/" + std::to_string(getpid()) + "-" + std::to_string(number) + ".jsonl";
        int made = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (made < 0 && errno == EEXIST)
            continue;
        if (made < 0)
            return false;
        close(made);
        path = new std::string(name);
        return true;
    }
}

// Maps the file of numbers. If the disk has no room, the report has no numbers, because a write to
// the mapping would raise SIGBUS.
void map_numbers() {
    constexpr size_t bytes = most_numbers * sizeof(uint64_t);
    std::string name = *path + ".numbers";
    int file = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    void *mapped = MAP_FAILED;
    if (posix_fallocate(file, 0, bytes) == 0)
        mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        report_numbers = static_cast<std::atomic<uint64_t> *>(mapped);
}

// The names of the first numbers, as a JSON array.
std::string names_of_numbers() {
    std::string json = "[\"calls\",\"pending\"";
    for (size_t i = 0; const char *kind = kind_of_objects(i); i++)
        json += "," + quoted(kind);
    return json + "]";
}

// Begins the report if it has not begun yet. Returns false if this process has no report. Requires
// the guard.
bool open_report() {
    if (!folder || path)
        return path;
    report_is_due = false;
    if (!make_file()) {
        std::fprintf(stderr, "cudadrv software driver: cannot write a report to %s: %s\n",
                     folder->c_str(), std::strerror(errno));
        forget(folder);
        return false;
    }
    write_line("{\"process\":{\"pid\":" + std::to_string(getpid()) +
               ",\"parent\":" + std::to_string(getppid()) + ",\"command\":" + command_line() +
               ",\"numbers\":" + names_of_numbers() + "}}");
    map_numbers();
    return true;
}

// Adds one to a number, if there are numbers.
void count(size_t place) {
    std::atomic<uint64_t> *numbers = report_numbers;
    if (numbers && place < most_numbers)
        numbers[place].fetch_add(1, std::memory_order_relaxed);
}

// Counts a call that is not supported, whose text has the function and the reason. When a program
// makes such calls in more than `most_refused` ways, the others are only in the log.
void count_refused(const std::string &text) {
    std::lock_guard<std::mutex> lock(guard);
    if (!open_report())
        return;
    if (!refused)
        refused = new std::map<std::string, size_t>;
    if (refused->size() == most_refused && !refused->count(text))
        return;
    auto [found, first] = refused->emplace(text, refused_place + refused->size());
    count(found->second);
    if (first)
        write_line("{\"refused_call\":" + quoted(text) +
                   ",\"place\":" + std::to_string(found->second) + "}");
}

void write_note(Note kind, const std::string &text) {
    if (kind == Note::NotSupported) {
        count_refused(text);
        return;
    }
    if (noted[static_cast<size_t>(kind)]++ >= most_lines)
        return;
    std::lock_guard<std::mutex> lock(guard);
    if (open_report())
        write_line(std::string("{\"") + note_names[static_cast<size_t>(kind)] +
                   "\":" + quoted(text) + "}");
}

// Tries to lock, for one second. At exit the lock may never become free: this thread may hold it,
// and may have been interrupted by a signal handler that called exit().
template <class Mutex> std::unique_lock<Mutex> lock_soon(Mutex &mutex) {
    std::unique_lock<Mutex> lock(mutex, std::defer_lock);
    for (int i = 0; i < 200 && !lock.try_lock(); i++)
        std::this_thread::sleep_for(5ms);
    return lock;
}

// Writes the last races and numbers. Races that still wait for the client's names are written
// without them, because it is too late to call the client.
void note_last() {
    if (in_forked_child() || !report_numbers)
        return;
    Lock lock = lock_soon(state().mutex);
    if (!lock.owns_lock())
        return;
    state().races.look();
    state().races.list.flush();
    state().hazards.flush();
    write_objects();
}

// Runs when the process exits, after the program's own destructors, and when the library is
// unloaded. Does not run if the process is killed or calls _exit().
[[gnu::destructor]] void end_report() {
    note_last();
    auto lock = lock_soon(guard);
    if (!lock.owns_lock())
        return;
    if (path)
        write_line("{\"exit\":true}");
    report_is_due = false;
    report_numbers = nullptr; // stays mapped, because other threads may be using it
    forget(folder);
    forget(path);
}

// Runs in a forked child, which has no report yet and has counted nothing.
void start_over_in_child() {
    forget(path);
    forget(refused);
    for (auto &number : noted)
        number = 0;
    report_numbers = nullptr;
    report_is_due = folder != nullptr;
    guard.unlock();
}

// Runs when the library is loaded.
[[gnu::constructor]] void prepare() {
    add_reader(write_note);
    pthread_atfork([] { guard.lock(); }, [] { guard.unlock(); }, start_over_in_child);
}

} // namespace

void report_to(const std::string &given) {
    if (given.empty())
        return;
    std::lock_guard<std::mutex> lock(guard);
    folder = new std::string(given);
    report_is_due = true;
}

void begin_report() {
    std::lock_guard<std::mutex> lock(guard);
    open_report();
}

void write_objects() {
    std::atomic<uint64_t> *numbers = report_numbers;
    if (!numbers) // the process is about to end
        return;
    for (size_t i = 0; kind_of_objects(i); i++)
        numbers[objects_place + i].store(count_objects(i), std::memory_order_relaxed);
    numbers[pending_place].store(state().scheduler.pending(), std::memory_order_relaxed);
}

void note_unsupported(const char *symbol, size_t index, bool first) {
    state(); // reads the settings, if this is the first call of the driver
    note_call();
    size_t place = unsupported_place + index;
    count(place);
    if (!first)
        return;
    std::lock_guard<std::mutex> lock(guard);
    if (path)
        write_line("{\"unsupported\":" + quoted(symbol) + ",\"place\":" + std::to_string(place) +
                   "}");
}

void note_forked(const char *symbol) {
    note_call();
    note(Note::Forked, symbol);
}

} // namespace soft
