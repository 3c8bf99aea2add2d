#pragma once

#include "check/clocks.h"

#include <cstdint>
#include <map>
#include <unordered_map>

namespace soft::check {

// What strong writes pass on to the threads that read the values: the release sequences of the
// memory model.
// A strong read sees the last write of exactly its bytes, if the scope of each includes the thread
// of the other. If that write is a read-modify-write, the read also sees what the write has seen.
class Signals {
  public:
    struct Access {
        uint64_t address;
        unsigned bytes;
        uint32_t block; // of the thread
        bool only_block;
    };
    bool empty() const { return words_.empty(); }
    void clear() { words_.clear(); }

    // Returns what a strong read learns, if it is part of an acquire pattern.
    Told seen_by(const Access &read) const;
    // Records a strong write, and what it passes on. `updates` is true for a read-modify-write.
    void write(const Access &write, const Told &told, bool updates);
    // A weak write tells nothing, and ends what was told before.
    void overwrite(uint64_t address, uint64_t bytes);

  private:
    struct Word {
        Access last; // the last write
        // What has been passed on: to all threads, and, by block, only to the threads of that
        // block.
        Known everyone;
        std::unordered_map<uint32_t, Known> blocks;
    };
    static bool sees(const Word &word, const Access &access);
    static void add(Word &word, const Told &told);

    std::map<uint64_t, Word> words_; // by address; no two of them overlap
};

} // namespace soft::check
