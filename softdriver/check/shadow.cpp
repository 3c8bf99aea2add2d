#include "check/shadow.h"

#include <algorithm>

namespace soft::check {

bool Entry::is_like(const Entry &other) const {
    if (block != other.block || epoch != other.epoch || place != other.place ||
        warp != other.warp || bytes != other.bytes || writes != other.writes)
        return false;
    return !sees || lanes == other.lanes || (!writes && number == other.number);
}

// Makes room for twice as many entries.
void Cell::grow() {
    auto *made = new Entry[size_t{2} << room_log_];
    std::copy_n(entries(), count_, made);
    if (room_log_)
        delete[] more();
    std::memcpy(place_, &made, sizeof made);
    room_log_++;
}

uint32_t Span::lanes_at(unsigned from, unsigned to) const {
    if (from >= end || to <= begin)
        return 0;
    if (!stride)
        return lanes;
    unsigned first = from < begin + unsigned(size) ? 0 : (from - begin - size) / stride + 1;
    unsigned behind = (std::min(to, unsigned(end)) - begin - 1) / stride + 1;
    uint32_t found = lanes;
    for (unsigned i = 0; i < first; i++)
        found &= found - 1;
    uint32_t rest = lanes;
    for (unsigned i = 0; i < behind; i++)
        rest &= rest - 1;
    return found & ~rest;
}

void Line::drop(unsigned i) {
    Span *spans = this->spans();
    // The last write replaces the dropped one, and the last read replaces that write.
    if (i < writes_) {
        spans[i] = spans[--writes_];
        i = writes_;
    }
    spans[i] = spans[--count_];
}

bool Line::add(const Span &span) {
    if (full()) {
        if (room_ == most)
            return false;
        unsigned room = more_ ? most : more;
        auto made = std::make_unique<Span[]>(room);
        std::copy_n(spans(), count_, made.get());
        more_ = std::move(made);
        room_ = uint8_t(room);
    }
    Span *spans = this->spans();
    if (span.writes) {
        spans[count_++] = spans[writes_];
        spans[writes_++] = span;
    } else
        spans[count_++] = span;
    return true;
}

void Line::spread() {
    if (!cells_)
        cells_ = std::make_unique<std::array<Cell, line_words>>();
    for (Cell &cell : *cells_)
        cell.clear();
    for (unsigned i = 0; i < count_; i++) {
        const Span &span = spans()[i];
        span.each([&](uint32_t lanes, unsigned at) {
            for (unsigned end = at + span.size, byte = at; byte < end;) {
                unsigned word = byte / word_bytes,
                         next = std::min<unsigned>(end, (word + 1) * unsigned(word_bytes));
                Entry entry = as_entry(span);
                entry.lanes = lanes;
                entry.bytes = bytes_of_word(byte, next);
                entry.number = entry.first = span.writes && span.strong; // 1 for each of them
                Cell &cell = (*cells_)[word];
                if (Entry *same = cell.find_like(entry))
                    same->merge(entry);
                else
                    cell.add(entry);
                byte = next;
            }
        });
    }
    count_ = writes_ = 0;
    more_.reset();
    room_ = own;
    spread_ = true;
}

} // namespace soft::check
