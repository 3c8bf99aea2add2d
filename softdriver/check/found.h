#pragma once

#include "check/hazards.h"

#include <map>
#include <unordered_set>

namespace soft::check {

// The hazards that a check has found in a launch: their keys, by the places in the kernel. There
// may be millions of different ones, so only the first ones are kept here. For the next ones only a
// hash is kept, and any others are not reported.
template <class Places> class Found {
  public:
    // Returns the key of a hazard that was kept, or null.
    const Hazards::Key *find(const Places &places) const {
        auto found = kept_.find(places);
        return found == kept_.end() ? nullptr : &found->second;
    }
    // Returns whether a hazard that find() does not find has to be reported. `number` belongs to
    // its places.
    bool is_new(uint64_t number) {
        return kept_.size() < most_kept ||
               (numbers_.size() < most_numbers && numbers_.insert(number).second);
    }
    void keep(const Places &places, const Hazards::Key &key) {
        if (kept_.size() < most_kept)
            kept_.emplace(places, key);
    }

  private:
    static constexpr size_t most_kept = 2000, most_numbers = 1'000'000;
    std::map<Places, Hazards::Key> kept_;
    std::unordered_set<uint64_t> numbers_;
};

} // namespace soft::check
