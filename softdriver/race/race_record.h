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

// Reports with the same key are counted as one: both sides and the allocation's id.
using RaceKey = std::tuple<std::string, std::string, uint64_t>;

// The list of races. Repetitions are only counted; the number of different races is limited.
class RaceRecord {
  public:
    // Adds a race; `describe` is called if it is new. It is printed at once, or with `ask` after
    // the client was asked for names.
    void add(const RaceKey &key, RaceMode mode, bool ask,
             const std::function<RaceText()> &describe);
    // The oldest race for which the client has not been asked for names, or null.
    const RaceText *first_unnamed() const;
    // The number of that race. clear() does not make numbers repeat.
    uint64_t number_of_first() const { return cleared_ << 32 | unnamed_; }
    // Sets the names of the race with this number, if it is still the oldest one without names.
    void name(uint64_t number, const RaceNames &names);

    size_t size() const { return entries_.size(); }
    // The text of a race, with the number of repetitions.
    std::string text(size_t index) const;
    void clear();
    // Prints the races that have no names yet, because the process ends.
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
    uint64_t lost_ = 0;  // different races that were not kept
    size_t unnamed_ = 0; // index of the first race that has no names yet
    uint64_t cleared_ = 0;
};

} // namespace soft
