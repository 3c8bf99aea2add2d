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

std::vector<Range> in_any_run(std::vector<Range> ranges) {
    for (Range &range : ranges)
        if (range.begin >= of_program && range.begin < 2 * of_program)
            range = {of_program, of_program};
    return ranges;
}

} // namespace

Footprint Footprint::in_any_run() const {
    return {explore::in_any_run(reads), explore::in_any_run(writes)};
}

bool Footprint::operator==(const Footprint &other) const {
    Footprint one = in_any_run(), two = other.in_any_run();
    return one.reads == two.reads && one.writes == two.writes;
}

bool Footprint::conflicts(const Footprint &other) const {
    return overlap(writes, other.writes) || overlap(writes, other.reads) ||
           overlap(reads, other.writes);
}

} // namespace soft::explore
