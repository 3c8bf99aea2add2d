#include "base/notes.h"

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

} // namespace soft
