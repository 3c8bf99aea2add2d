#pragma once

#include "race/race_text.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace soft {

enum class RaceMode { Off, Record, Print, Abort };

// What makes two reports the same: who raced (functions and kernels) on which allocation.
using RaceKey = std::tuple<std::string, std::string, uint64_t>;

// The races that were found. Repetitions are counted and not kept, and there is room for some
// hundreds of different ones.
class RaceRecord {
  public:
    // `describe` makes the text of a race that is new. It is told (printed) at once, or, where a
    // client may have names for it, when that has been asked.
    void add(const RaceKey &key, RaceMode mode, bool ask,
             const std::function<RaceText()> &describe);
    // The oldest one that the client has not been asked about, or null; and how to name it then.
    const RaceText *first_unnamed() const;
    uint64_t number_of_first() const { return cleared_ << 32 | unnamed_; }
    void name(uint64_t number, const RaceNames &names);
    size_t size() const { return entries_.size(); }
    // The index-th one, with how often it was found.
    std::string text(size_t index) const;
    void clear();
    // Prints those that are still to be named: the process ends.
    void flush();

  private:
    struct Entry {
        RaceText parts;
        std::string text;
        uint64_t count;
        bool print;
    };

    void tell(Entry &entry, const RaceNames &names);

    std::vector<Entry> entries_;
    std::map<RaceKey, size_t> known_;
    uint64_t lost_ = 0;  // different ones, for which there was no room
    size_t unnamed_ = 0; // all before this one have been told
    uint64_t cleared_ = 0;
};

} // namespace soft
