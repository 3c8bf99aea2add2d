#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

// The accesses to memory that later accesses may race with.

namespace soft::check {

constexpr size_t word_bytes = 4, line_words = 32, line_bytes = line_words * word_bytes;

// An access of lanes of a warp to bytes of a word.
struct Entry {
    uint32_t block = 0, epoch = 0, lanes = 0;
    uint32_t place = 0;          // the step: see place_of()
    uint8_t warp = 0, bytes = 0; // `bytes` has a bit for each byte of the word
    bool writes = false, strong = false, only_block = false;
    uint8_t size = 0; // the bytes of the whole access
};

// The accesses to a word. The first `own` of them are stored in the cell itself.
class Cell {
  public:
    size_t size() const { return count_; }
    Entry &operator[](size_t i) { return i < own ? first_[i] : more_[i - own]; }
    void clear() { count_ = 0; }
    void drop(size_t i) {
        (*this)[i] = (*this)[count_ - 1];
        count_--;
    }
    void add(const Entry &entry) {
        if (count_ >= own && more_.size() <= count_ - own)
            more_.resize(count_ - own + 1);
        (*this)[count_++] = entry;
    }

  private:
    static constexpr size_t own = 2;
    uint32_t count_ = 0;
    Entry first_[own];
    std::vector<Entry> more_;
};

// An access of a whole warp whose lanes access neighbouring items, to some words of a line.
struct Span {
    Entry entry;                // `lanes` has those that access this line
    uint8_t begin = 0, end = 0; // the accessed words of the line
    uint8_t words = 1;          // words that each lane accesses
    int8_t first = 0;           // the lane of word 0; outside of 0 to 31 if no lane accesses word 0

    unsigned lane_of(unsigned word) const { return unsigned(first + int(word / words)); }
    bool same_lanes(const Span &other) const {
        return words == other.words && first == other.first;
    }
    bool covers(const Span &other) const { return begin <= other.begin && other.end <= end; }
    bool overlaps(const Span &other) const { return begin < other.end && other.begin < end; }
};

// The words of a line. Most lines are only accessed by whole warps, so that a few spans are enough
// for all words. Other lines have a cell for each word.
class Line {
  public:
    // Forgets everything if the line is of an older generation.
    void begin(uint32_t generation) {
        if (generation_ == generation)
            return;
        generation_ = generation;
        count_ = 0;
        spread_ = false;
    }
    Cell &cell(size_t word) {
        if (!spread_)
            spread();
        return (*cells_)[word];
    }
    bool has_cells() const { return spread_; }
    size_t size() const { return count_; }
    bool full() const { return count_ == most; }
    const Span &operator[](size_t i) const { return spans_[i]; }
    void drop(size_t i) { spans_[i] = spans_[--count_]; }
    void add(const Span &span) { spans_[count_++] = span; }

  private:
    static constexpr size_t most = 8;
    void spread();

    uint32_t generation_ = 0;
    uint8_t count_ = 0;
    bool spread_ = false;
    Span spans_[most];
    std::unique_ptr<std::array<Cell, line_words>> cells_;
};

// The lines of global memory, made when a line is first used.
class Shadow {
  public:
    Line &operator[](uintptr_t line) {
        uintptr_t number = line / page_lines;
        if (!page_ || number != number_) {
            std::unique_ptr<Page> &page = pages_[number];
            if (!page)
                page = std::make_unique<Page>();
            page_ = page.get();
            number_ = number;
        }
        return page_->lines[line % page_lines];
    }

  private:
    static constexpr size_t page_lines = 64;
    struct Page {
        Line lines[page_lines];
    };
    std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
    Page *page_ = nullptr;
    uintptr_t number_ = 0;
};

} // namespace soft::check
