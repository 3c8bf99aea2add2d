#pragma once

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
    // `describe` makes the text of a race that is new.
    void add(const RaceKey &key, RaceMode mode, const std::function<std::string()> &describe);
    size_t size() const { return entries_.size(); }
    // The index-th one, with how often it was found.
    std::string text(size_t index) const;
    void clear();

  private:
    struct Entry {
        std::string text;
        uint64_t count;
    };

    std::vector<Entry> entries_;
    std::map<RaceKey, size_t> known_;
    uint64_t lost_ = 0; // different ones, for which there was no room
};

} // namespace soft
