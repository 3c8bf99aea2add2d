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
    uint32_t place = 0;          // the step: see KernelRaces::place_of
    uint8_t warp = 0, bytes = 0; // `bytes` has a bit for each byte of the word
    bool writes = false, strong = false, only_block = false;
    uint8_t size = 0; // the bytes of the whole access
};

using Cell = std::vector<Entry>;

// The words of a line. Most lines are only accessed by whole warps whose lanes access neighbouring
// items, so that one entry is enough for all words. Other lines have a cell for each word.
class Line {
  public:
    // Forgets everything if the line is of an older generation.
    void begin(uint32_t generation) {
        if (generation_ == generation)
            return;
        generation_ = generation;
        count_ = 0;
        cells_.reset();
    }
    Cell &cell(size_t word) {
        if (!cells_)
            spread();
        return (*cells_)[word];
    }
    // Whether entries for the whole line are possible, in which lane `first` + i / (size / 4) has
    // accessed word i.
    bool takes(unsigned size, unsigned first) const {
        return !cells_ && (!count_ || (size_ == size && first_ == first));
    }
    size_t count() const { return count_; }
    const Entry &operator[](size_t i) const { return entries_[i]; }
    void drop(size_t i) { entries_[i] = entries_[--count_]; }
    // Adds an entry for the whole line. Returns false if there is no room.
    bool add(const Entry &entry, unsigned size, unsigned first) {
        if (count_ == most)
            return false;
        size_ = uint8_t(size);
        first_ = uint8_t(first);
        entries_[count_++] = entry;
        return true;
    }

  private:
    static constexpr size_t most = 3;
    void spread();

    uint32_t generation_ = 0;
    uint8_t count_ = 0, size_ = 0, first_ = 0;
    Entry entries_[most];
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
