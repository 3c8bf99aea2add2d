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

// Both sides of a race and the id of the allocation. Races with the same key are counted as one.
using RaceKey = std::tuple<std::string, std::string, uint64_t>;

// The list of races. A repetition of a race is only counted, and the number of different races is
// limited.
class RaceRecord {
  public:
    // Adds a race, and calls `describe` if it is new. The race is printed at once or, with `ask`,
    // when the client has been asked for names.
    void add(const RaceKey &key, RaceMode mode, bool ask,
             const std::function<RaceText()> &describe);
    // Returns the oldest race for which the client has not been asked for names, or null.
    const RaceText *first_unnamed() const;
    // Returns the number of first_unnamed(). A number is never used again, even after clear().
    uint64_t number_of_first() const { return cleared_ << 32 | unnamed_; }
    // Sets the names of the race with this number, if it is still the oldest one without names.
    void name(uint64_t number, const RaceNames &names);

    size_t size() const { return entries_.size(); }
    // Returns the text of a race, with the number of its repetitions.
    std::string text(size_t index) const;
    void clear();
    // Called when the process ends. Prints the races for which the client has not been asked for
    // names.
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
    uint64_t lost_ = 0;  // number of different races that were not kept
    size_t unnamed_ = 0; // index of the first race for which the client has not been asked
    uint64_t cleared_ = 0;
};

} // namespace soft
