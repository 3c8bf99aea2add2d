#include "check/between_blocks.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <tuple>

namespace soft::check {

namespace {

// The most accesses of different blocks at one place of the code that are kept for a byte.
constexpr unsigned most_values = 4;

constexpr size_t chunk_segments = 512;

// The bits of a value that are not set if all lanes store the same.
constexpr uint32_t differs_bit = 1;

bool may_race(const BlockAccess &one, const BlockAccess &other) {
    bool atomic = one.strong && one.strong == other.strong && !one.only_block && !other.only_block;
    return one.block != other.block && (one.writes || other.writes) && !atomic &&
           one.overlaps(other);
}

// The order of races: by blocks, then by threads.
auto rank(const BlockRace &race) {
    return std::make_tuple(race.first.block, race.second.block, race.first.warp, race.first_lane,
                           race.second.warp, race.second_lane, race.address, race.first.place);
}

} // namespace

bool BlockAccess::stores_the_same(const BlockAccess &other) const {
    if (!is_weak_write() || !other.is_weak_write() || value() != other.value() ||
        size != other.size)
        return false;
    return !(value() & differs_bit) ||
           (begin == other.begin && end == other.end && stride == other.stride);
}

BlockAccesses::Segment *BlockAccesses::Room::take() {
    if (next_ == end_) {
        chunks_.emplace_back(new unsigned char[chunk_segments * sizeof(Segment)]);
        next_ = chunks_.back().get();
        end_ = next_ + chunk_segments * sizeof(Segment);
    }
    next_ += sizeof(Segment);
    return new (next_ - sizeof(Segment)) Segment;
}

// Takes over the segments of `other`.
void BlockAccesses::Room::join(Room &other) {
    std::move(other.chunks_.begin(), other.chunks_.end(), std::back_inserter(chunks_));
    other = {};
}

BlockAccesses::Segment *BlockAccesses::segment(size_t i) const {
    Segment *found = first_;
    for (size_t before = i / segment_size; before--;)
        found = found->next;
    return found;
}

void BlockAccesses::add(const BlockAccess &access, Room &room) {
    if (count_ % segment_size == 0) {
        Segment *&next = last_ ? last_->next : first_;
        next = next ? next : room.take();
        last_ = next;
    }
    several_ = several_ || (count_ && first_->accesses[0].block != access.block);
    writes_ = writes_ || access.writes;
    last_->accesses[count_++ % segment_size] = access;
}

void BlockAccesses::drop(size_t i) {
    (*this)[i] = (*this)[--count_];
    if (count_ % segment_size == 0)
        last_ = count_ ? segment(count_ - 1) : nullptr;
}

// Returns whether each race with this access is one with another access of the same place and of a
// lower block, too: two of them are enough, because one of them may be of the other block. Writes
// must store the same, or there must be enough others to see that blocks store different bytes.
bool BetweenBlocks::is_needless(const Accesses &all, const BlockAccess &access) {
    unsigned same = 0, lower = 0;
    uint32_t same_block = 0, lower_block = 0;
    for (const BlockAccess &each : all) {
        if (each.place != access.place || each.block >= access.block || !each.covers(access))
            continue;
        if (!access.is_weak_write() || each.stores_the_same(access)) {
            same += !same || each.block != same_block;
            same_block = each.block;
        }
        lower += !lower || each.block != lower_block;
        lower_block = each.block;
    }
    return same >= 2 || lower >= most_values;
}

void BetweenBlocks::add(uint64_t line, const BlockAccess &access) {
    Accesses &all = lines_[line];
    bool alone = true; // the block is the only one that accesses the line at this place
    for (BlockAccess &each : all) {
        if (each.place != access.place)
            continue;
        bool same_block = each.block == access.block;
        if (same_block && each.covers(access) &&
            (!access.is_weak_write() || each.stores_the_same(access))) {
            if (access.warp < each.warp && access.covers(each))
                each = access; // so that the order of warps does not matter
            return;
        }
        alone = alone && same_block;
    }
    if (!alone && is_needless(all, access))
        return;
    all.add(access, room_);
    if (alone)
        return;
    for (size_t i = all.size(); i-- > 0;)
        if (all[i].place == access.place && all[i].block > access.block && access.covers(all[i]) &&
            is_needless(all, all[i]))
            all.drop(i);
}

void BetweenBlocks::join(BetweenBlocks &other) {
    room_.join(other.room_);
    lines_.join(other.lines_, [this](Accesses &own, const Accesses &more) {
        for (const BlockAccess &access : more)
            own.add(access, room_);
    });
}

// Compares all accesses to a line.
void BetweenBlocks::compare(uint64_t line, const std::vector<BlockAccess> &all, Races &races) {
    Races found;
    for (size_t i = 0; i < all.size(); i++)
        for (size_t j = 0; j < i; j++) {
            if (!may_race(all[i], all[j]))
                continue;
            BlockRace race;
            bool in_order = all[i].block < all[j].block;
            race.first = in_order ? all[i] : all[j];
            race.second = in_order ? all[j] : all[i];
            race.benign = race.first.stores_the_same(race.second);
            race.lines = 1;
            bool overlap = false;
            race.second.each([&](uint32_t lanes, unsigned at) {
                uint32_t others = overlap ? 0 : race.first.lanes_at(at, at + race.second.size);
                if (!others)
                    return;
                overlap = true;
                race.first_lane = unsigned(__builtin_ctz(others));
                race.second_lane = unsigned(__builtin_ctz(lanes));
                race.address = line * line_bytes + at;
            });
            if (!overlap)
                continue;
            auto places = std::minmax(race.first.place, race.second.place);
            auto [known, is_new] =
                found.try_emplace({places.first, places.second, race.benign}, race);
            if (!is_new && rank(race) < rank(known->second))
                known->second = race;
        }
    for (auto &[key, race] : found) {
        auto [known, is_new] = races.try_emplace(key, race);
        if (is_new)
            continue;
        race.lines = known->second.lines + 1;
        if (rank(known->second) < rank(race))
            known->second.lines = race.lines;
        else
            known->second = race;
    }
}

BetweenBlocks::Races BetweenBlocks::races() const {
    Races found;
    lines_.each([&](uint64_t line, const Accesses &all) {
        if (!all.may_race())
            return;
        std::vector<BlockAccess> list;
        for (const BlockAccess &access : all)
            list.push_back(access);
        compare(line, list, found);
    });
    return found;
}

} // namespace soft::check
