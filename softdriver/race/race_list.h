#pragma once

#include "base/settings.h"
#include "race/race_text.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace soft {

// Identifies a race by its two sides and the id of the allocation. Races with equal keys are
// counted as one race.
using RaceKey = std::tuple<std::string, std::string, uint64_t>;

// The list of races. If a race is repeated, only its count grows. The number of different races is
// limited.
class RaceList {
  public:
    // Adds a race, or counts a repetition. `describe` is called for a new race only. With `ask`,
    // the race is printed after the client has been asked for names; otherwise it is printed at
    // once.
    void add(const RaceKey &key, RaceMode mode, bool ask,
             const std::function<RaceText()> &describe);
    // Returns the oldest race for which the client has not been asked for names, or null.
    const RaceText *first_unnamed() const;
    // Returns a number for first_unnamed(), which no other race has, even after clear().
    uint64_t number_of_first() const { return cleared_ << 32 | unnamed_; }
    // Sets the names of the race with this number, if that is still the oldest race without names.
    void name(uint64_t number, const RaceNames &names);

    size_t size() const { return entries_.size(); }
    // Returns the text of a race. A race that was repeated has its count at the end.
    std::string text(size_t index) const;
    void clear();
    // Prints the races for which the client has not been asked for names. Called when the process
    // ends, for example.
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
    uint64_t lost_ = 0; // number of different races that were not kept, because the list was full
    // Index of the first race for which the client has not been asked for names.
    size_t unnamed_ = 0;
    uint64_t cleared_ = 0;
};

} // namespace soft
