#include "explore/run.h"

namespace soft::explore {
namespace {

bool overlap(const std::vector<Range> &some, const std::vector<Range> &others) {
    for (const Range &range : some)
        for (const Range &other : others)
            if (range.overlaps(other))
                return true;
    return false;
}

} // namespace

bool Footprint::conflicts(const Footprint &other) const {
    return overlap(writes, other.writes) || overlap(writes, other.reads) ||
           overlap(reads, other.writes);
}

} // namespace soft::explore
