#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

// The accesses to each word of memory that later accesses may race with.

namespace soft::check {

constexpr size_t word_bytes = 4;

// An access of lanes of a warp to bytes of a word.
struct Entry {
    uint32_t block = 0, epoch = 0, lanes = 0;
    uint32_t place = 0;          // the step: see KernelRaces::place_of
    uint8_t warp = 0, bytes = 0; // `bytes` has a bit for each byte of the word
    bool writes = false, strong = false, only_block = false;
    uint8_t size = 0; // the bytes of the whole access
};

struct Cell {
    uint32_t generation = 0; // older cells of shared memory are empty
    std::vector<Entry> entries;
};

// The cells of global memory, made when a word is first used.
class Shadow {
  public:
    Cell &operator[](uintptr_t word) {
        uintptr_t number = word / page_words;
        if (!page_ || number != number_) {
            std::unique_ptr<Page> &page = pages_[number];
            if (!page)
                page = std::make_unique<Page>();
            page_ = page.get();
            number_ = number;
        }
        return page_->cells[word % page_words];
    }

  private:
    static constexpr size_t page_words = 256;
    struct Page {
        Cell cells[page_words];
    };
    std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
    Page *page_ = nullptr;
    uintptr_t number_ = 0;
};

} // namespace soft::check
