#include "check/shadow.h"

namespace soft::check {

void Line::spread() {
    cells_ = std::make_unique<std::array<Cell, line_words>>();
    for (size_t i = 0; i < count_; i++)
        for (size_t word = 0; word < line_words; word++) {
            Entry entry = entries_[i];
            entry.lanes = 1u << (first_ + word * word_bytes / size_);
            (*cells_)[word].push_back(entry);
        }
    count_ = 0;
}

} // namespace soft::check
