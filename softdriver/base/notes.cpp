#include "base/notes.h"

#include <mutex>
#include <set>

namespace soft {
namespace {

// Not a vector, because readers are added before the constructors of this file's objects may run.
NoteReader readers[4];
int reader_count = 0;

} // namespace

void add_reader(NoteReader reader) { readers[reader_count++] = reader; }

void note(Note what, const std::string &text) {
    for (int i = 0; i < reader_count; i++)
        readers[i](what, text);
}

void warn(const std::string &text) {
    static std::mutex guard;
    static auto &told = *new std::set<std::string>; // never destroyed: kernels may still run
    {
        std::lock_guard<std::mutex> lock(guard);
        if (!told.insert(text).second)
            return;
    }
    note(Note::Warning, text);
}

} // namespace soft
