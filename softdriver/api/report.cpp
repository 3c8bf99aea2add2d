#include "api/report.h"

#include "api/call.h"
#include "api/counts.h"
#include "api/state.h"
#include "base/names.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <thread>
#include <unistd.h>

namespace soft {

std::atomic<bool> report_is_due{false};

namespace {

using namespace std::chrono_literals;

// A program may repeat a mistake forever, and nobody reads more lines than this.
constexpr uint64_t most_lines = 500;

enum class Note { Unsupported, RefusedImage, Forked, KernelFault, Race };
constexpr const char *note_names[] = {"unsupported", "refused_image", "forked", "kernel_fault",
                                      "data_race"};

constexpr const char *kinds[] = {"device",  "async",  "host",      "managed", "registered", "bytes",
                                 "streams", "events", "graphs",    "execs",   "objects",    "pools",
                                 "modules", "links",  "libraries", "contexts"};

// Guards the two variables below, and is held while a line is written. A fork takes it, so that the
// child can write its own report.
std::mutex guard;
std::string *folder = nullptr; // where reports are; null: nowhere
std::string *path = nullptr;   // the file of this process, once it has called the driver
std::array<std::atomic<uint64_t>, std::size(note_names)> noted;

void forget(std::string *&text) {
    delete text;
    text = nullptr;
}

std::string quoted(const std::string &text) {
    std::string json = "\"";
    for (char letter : text) {
        auto code = static_cast<unsigned char>(letter);
        if (letter == '"' || letter == '\\')
            json += {'\\', letter};
        else if (code >= ' ' && code != 127)
            json += letter;
        else {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", code);
            json += escaped;
        }
    }
    return json + '"';
}

// Opens the file for each line: a program may close all files that it has not opened itself, and
// open others under their numbers.
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

// Makes the file of this process. Process numbers may come again, so its name is the first that is
// free. Requires the guard.
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

// Requires the guard. Returns false if there is no report.
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
    write_line("{\"process\":{\"pid\":" + std::to_string(getpid()) + ",\"parent\":" +
               std::to_string(getppid()) + ",\"command\":" + command_line() + "}}");
    return true;
}

void note(Note kind, const std::string &text) {
    if (noted[static_cast<size_t>(kind)]++ >= most_lines)
        return;
    std::lock_guard<std::mutex> lock(guard);
    if (open_report())
        write_line(std::string("{\"") + note_names[static_cast<size_t>(kind)] +
                   "\":" + quoted(text) + "}");
}

// Locks if that is possible soon. A thread that exits may have interrupted itself, in a handler of
// a signal, while it held the lock.
template <class Mutex> std::unique_lock<Mutex> lock_soon(Mutex &mutex) {
    std::unique_lock<Mutex> lock(mutex, std::try_to_lock);
    for (int i = 0; i < 200 && !lock.owns_lock(); i++) {
        std::this_thread::sleep_for(5ms);
        lock.try_lock();
    }
    return lock;
}

std::string unsupported_calls() {
    std::string json;
    for (size_t i = 0; const char *symbol = unsupported_called(i).symbol; i++)
        json += (i ? "," : "") + quoted(symbol) + ":" + std::to_string(unsupported_called(i).calls);
    return "{" + json + "}";
}

// Requires the lock of the state.
std::string live_objects() {
    std::string json;
    for (const char *kind : kinds)
        if (uint64_t count = count_objects(kind))
            json += (json.empty() ? "" : ",") + quoted(kind) + ":" + std::to_string(count);
    return "{" + json + "}";
}

std::string notes() {
    std::string json;
    for (size_t i = 0; i < noted.size(); i++)
        json += (i ? "," : "") + quoted(note_names[i]) + ":" + std::to_string(noted[i]);
    return "{" + json + "}";
}

// Runs when a process exits, after the program's own destructors; not if it is killed, nor under
// _exit(). Also runs when the library is unloaded.
[[gnu::destructor]] void end_report() {
    write_numbers(true);
    auto lock = lock_soon(guard);
    report_is_due = false;
    if (!lock.owns_lock())
        return;
    forget(folder);
    forget(path);
}

// The child has done nothing yet.
void start_over_in_child() {
    forget(path);
    for (auto &count : noted)
        count = 0;
    report_is_due = folder != nullptr;
    guard.unlock();
}

// Runs when the library is loaded.
[[gnu::constructor]] void prepare_forks() {
    pthread_atfork([] { guard.lock(); }, [] { guard.unlock(); }, start_over_in_child);
}

bool has_report() {
    auto lock = lock_soon(guard);
    return lock.owns_lock() && path;
}

// Describes what is alive. Returns an empty text if another thread keeps the state locked.
std::string objects_and_work() {
    if (in_forked_child())
        return "{},\"pending\":0";
    Lock lock = lock_soon(state().mutex);
    if (!lock.owns_lock())
        return "";
    return live_objects() + ",\"pending\":" + std::to_string(state().scheduler.pending());
}

// Races that still wait for the client's names are written without them at exit, because it is too
// late to call the client.
void note_last_races() {
    if (in_forked_child())
        return;
    Lock lock = lock_soon(state().mutex);
    if (!lock.owns_lock())
        return;
    state().races.look();
    state().races.record.flush();
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

void note_unsupported(const char *symbol) {
    state(); // reads the settings, if this is the first call of the driver
    note(Note::Unsupported, symbol);
}

void note_refused_image(const std::string &why) { note(Note::RefusedImage, why); }
void note_forked(const char *symbol) { note(Note::Forked, symbol); }
void note_kernel_fault(const std::string &text) { note(Note::KernelFault, text); }
void note_race(const std::string &text) { note(Note::Race, text); }

bool write_numbers(bool at_exit) {
    if (!has_report())
        return false;
    if (at_exit)
        note_last_races();
    std::string alive = objects_and_work();
    auto lock = lock_soon(guard);
    if (!lock.owns_lock() || !path)
        return false;
    write_line("{\"numbers\":{\"calls\":" + std::to_string(all_calls() + all_unsupported_calls()) +
               ",\"unsupported\":" + unsupported_calls() + ",\"noted\":" + notes() +
               (alive.empty() ? "" : ",\"alive\":" + alive) +
               ",\"exit\":" + (at_exit ? "true" : "false") + "}}");
    return true;
}

} // namespace soft
