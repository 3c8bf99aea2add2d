#include "check/shadow.h"

namespace soft::check {

void Line::spread() {
    if (!cells_)
        cells_ = std::make_unique<std::array<Cell, line_words>>();
    for (Cell &cell : *cells_)
        cell.clear();
    for (size_t i = 0; i < count_; i++)
        for (unsigned word = spans_[i].begin; word < spans_[i].end; word++) {
            Entry entry = spans_[i].entry;
            entry.lanes = 1u << spans_[i].lane_of(word);
            (*cells_)[word].add(entry);
        }
    count_ = 0;
    spread_ = true;
}

} // namespace soft::check
