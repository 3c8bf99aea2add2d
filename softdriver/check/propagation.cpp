#include "check/propagation.h"

#include "ptx/shuffle.h"

#include <algorithm>
#include <cstring>

namespace soft::check {

using ptx::Flow;
using ptx::Part;
using ptx::Row;
using ptx::warp_size;

using Rule = Flow::Rule;

uint64_t Registers::mask(Part part, unsigned lane) const {
    uint64_t mask = 0;
    if (part.width) {
        memcpy(&mask, &masks_[part.row + lane * part.width], part.width);
        return mask;
    }
    memcpy(&mask, &masks_[part.row], sizeof(uint32_t));
    return mask >> lane & 1;
}

uint32_t Registers::lanes(Part part) const {
    uint32_t lanes = 0;
    for (unsigned lane = 0; lane < warp_size && !is_clean(part); lane++)
        lanes |= uint32_t(mask(part, lane) != 0) << lane;
    return lanes;
}

void Registers::set(Part part, uint32_t lanes, const Masks &masks, uint32_t origin) {
    bool was_clean = is_clean(part);
    if (was_clean && !origin)
        return;
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t bits = masks[lane];
        if (part.width) {
            memcpy(&masks_[part.row + lane * part.width], &bits, part.width);
            continue;
        }
        uint8_t &byte = masks_[part.row + lane / 8];
        byte = uint8_t((byte & ~(1u << lane % 8)) | uint32_t(bits & 1) << lane % 8);
    }
    size_t bytes = part.width ? size_t(part.width) * warp_size : sizeof(uint32_t);
    auto begin = masks_.begin() + part.row;
    bool clean = std::all_of(begin, begin + long(bytes), [](uint8_t mask) { return !mask; });
    undefined_ += size_t(!clean) - size_t(!was_clean);
    uint32_t &own = origins_[part.row / unit];
    own = clean ? 0 : origin ? origin : own;
}

void Registers::clear() {
    if (is_clean())
        return;
    std::fill(masks_.begin(), masks_.end(), 0);
    std::fill(origins_.begin(), origins_.end(), 0);
    undefined_ = 0;
}

uint64_t sign_extended(uint64_t mask, unsigned bits) {
    bool sign = bits && bits < 64 && mask >> (bits - 1) & 1;
    return sign ? mask | ~uint64_t{0} << bits : mask;
}

namespace {

uint64_t value_of(const ptx::Warp &warp, Row row, uint8_t width, unsigned lane) {
    uint64_t value = 0;
    if (!width)
        return warp.predicate(row) >> lane & 1;
    memcpy(&value, warp.row<char>(row) + lane * width, width);
    return value;
}

// The step of one lane.
class Lane {
  public:
    Lane(const ptx::Warp &warp, const ptx::Step &step, const Flow &flow, const Part *parts,
         const Registers &registers, unsigned lane)
        : warp_(warp), step_(step), flow_(flow), results_(parts), sources_(parts + flow.results),
          registers_(registers), lane_(lane) {}

    // Returns the undefined bits of a result.
    uint64_t result(unsigned i) const;

  private:
    uint64_t source(unsigned i) const {
        return i < flow_.sources ? registers_.mask(sources_[i], lane_) : 0;
    }
    uint8_t width(unsigned i) const { return i < flow_.sources ? sources_[i].width : 0; }
    // The value of a row of the step.
    uint64_t value(unsigned row, uint8_t width) const {
        return value_of(warp_, step_.rows[row], width, lane_);
    }
    uint64_t any() const {
        uint64_t bits = 0;
        for (unsigned i = 0; i < flow_.sources; i++)
            bits |= source(i);
        return bits;
    }
    uint64_t by_rule(Rule rule, unsigned i, uint8_t width) const;
    uint64_t whole(uint8_t width) const { return any() ? all_bits(width) : 0; }
    uint64_t low(uint8_t width) const;
    uint64_t conjunction(uint8_t width, bool negated) const;
    uint64_t lookup() const;
    uint64_t shifted(uint8_t width, bool left) const;
    uint64_t extracted(uint8_t width) const;
    uint64_t inserted(uint8_t width) const;
    uint64_t permuted() const;
    uint64_t selected(uint8_t width) const;
    uint64_t compared(uint8_t width) const;
    uint64_t packed(uint8_t width) const;
    uint64_t shuffled(uint8_t width) const;
    uint64_t of_warp(bool ballot, uint8_t width) const;

    const ptx::Warp &warp_;
    const ptx::Step &step_;
    const Flow &flow_;
    const Part *const results_, *const sources_;
    const Registers &registers_;
    const unsigned lane_;
};

uint64_t Lane::low(uint8_t width) const {
    uint64_t bits = any();
    return width ? bits | -(bits & -bits) : bits != 0;
}

// A bit of `a & b` is defined if one of the two is a defined 0. With `negated`, of `a | b`.
uint64_t Lane::conjunction(uint8_t width, bool negated) const {
    uint64_t a = source(0), b = source(1);
    uint64_t flip = negated ? ~uint64_t{0} : 0;
    uint64_t may_hold_a = (value(1, width) ^ flip) | a, may_hold_b = (value(2, width) ^ flip) | b;
    return (a & may_hold_b) | (b & may_hold_a);
}

// A bit of lop3 is undefined if the possible values of its three bits give both results.
uint64_t Lane::lookup() const {
    uint64_t table = value(4, 4), zero = 0, one = 0;
    for (unsigned combination = 0; combination < 8; combination++) {
        uint64_t possible = ~uint64_t{0};
        for (unsigned i = 0; i < 3; i++) {
            uint64_t bits = value(i + 1, 4);
            possible &= source(i) | (combination >> (2 - i) & 1 ? bits : ~bits);
        }
        (table >> combination & 1 ? one : zero) |= possible;
    }
    return zero & one;
}

uint64_t Lane::shifted(uint8_t width, bool left) const {
    if (source(1))
        return whole(width);
    unsigned bits = 8u * width;
    uint64_t by = value(2, 4), mask = source(0);
    if (!left && flow_.is_signed)
        mask = sign_extended(mask, bits);
    if (by >= bits)
        return !left && flow_.is_signed && mask >> (bits - 1) & 1 ? all_bits(width) : 0;
    if (left)
        return mask << by;
    return flow_.is_signed ? uint64_t(int64_t(mask) >> by) : mask >> by;
}

uint64_t Lane::extracted(uint8_t width) const {
    if (source(1) || source(2))
        return whole(width);
    unsigned bits = 8u * width;
    uint64_t at = value(2, 4) & 0xff, count = value(3, 4) & 0xff, mask = source(0);
    if (!count)
        return 0;
    uint64_t highest = std::min<uint64_t>(at + count - 1, bits - 1);
    bool sign = flow_.is_signed && mask >> highest & 1;
    uint64_t found = at < bits ? mask >> at : 0;
    uint64_t kept = count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    uint64_t there = at < bits ? all_bits(width) >> at & kept : 0;
    return (found & kept) | (sign ? ~there : 0);
}

uint64_t Lane::inserted(uint8_t width) const {
    if (source(2) || source(3))
        return whole(width);
    uint64_t at = value(3, 4) & 0xff, count = value(4, 4) & 0xff;
    uint64_t kept = count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    uint64_t field = at < 64 ? kept << at : 0;
    return (source(1) & ~field) | (at < 64 ? source(0) << at & field : 0);
}

uint64_t Lane::permuted() const {
    if (source(2))
        return whole(4);
    uint64_t selector = value(3, 4), both = source(1) << 32 | source(0), mask = 0;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t choice = selector >> 4 * i & 0xf, byte = both >> 8 * (choice & 7) & 0xff;
        if (choice & 8)
            byte = byte & 0x80 ? 0xff : 0;
        mask |= byte << 8 * i;
    }
    return mask;
}

// If the condition is undefined, the bits that are equal in both values are still defined.
uint64_t Lane::selected(uint8_t width) const {
    if (source(2))
        return source(0) | source(1) | (value(1, width) ^ value(2, width));
    return value(3, 0) ? source(0) : source(1);
}

uint64_t Lane::compared(uint8_t width) const {
    if (flow_.detail && flow_.sources == 2) {
        uint8_t size = this->width(0);
        if ((value(1, size) ^ value(2, size)) & ~(source(0) | source(1)))
            return 0; // two defined bits differ
    }
    return whole(width);
}

uint64_t Lane::packed(uint8_t width) const {
    unsigned bits = 8u * width / std::max(1u, unsigned(flow_.sources));
    uint64_t kept = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1, mask = 0;
    for (unsigned i = 0; i < flow_.sources; i++)
        mask |= (source(i) & kept) << bits * i;
    return mask;
}

uint64_t Lane::shuffled(uint8_t width) const {
    if (!width || !flow_.sources)
        return 0; // whether the lane that is read exists
    if (source(1) || source(2))
        return all_bits(width);
    int from = ptx::lane_read_by(warp_, step_, lane_);
    return registers_.mask(sources_[0], from < 0 ? lane_ : unsigned(from));
}

uint64_t Lane::of_warp(bool ballot, uint8_t width) const {
    if (!flow_.sources)
        return 0;
    uint32_t members = step_.offset ? warp_.row<uint32_t>(step_.rows[9])[lane_] : ~uint32_t{0};
    uint32_t undefined = registers_.lanes(sources_[0]) & warp_.active & members;
    return ballot ? undefined : undefined ? all_bits(width) : 0;
}

uint64_t Lane::by_rule(Rule rule, unsigned i, uint8_t width) const {
    switch (rule) {
    case Rule::Hidden:
        return 0;
    case Rule::Bits:
        return any();
    case Rule::And:
        return conjunction(width, false);
    case Rule::Or:
        return conjunction(width, true);
    case Rule::Lookup:
        return lookup();
    case Rule::Low:
        return low(width);
    case Rule::Left:
        return shifted(width, true);
    case Rule::Right:
        return shifted(width, false);
    case Rule::Extract:
        return extracted(width);
    case Rule::Insert:
        return inserted(width);
    case Rule::Permute:
        return permuted();
    case Rule::Select:
        return selected(width);
    case Rule::Compare:
        return compared(width);
    case Rule::Pack:
        return packed(width);
    case Rule::Unpack:
        return source(0) >> (8u * this->width(0) / std::max(1u, unsigned(flow_.results)) * i);
    case Rule::Each:
        return source(i);
    case Rule::Extend: {
        unsigned bits = 8u * flow_.detail;
        uint64_t kept = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
        return flow_.is_signed ? sign_extended(source(0) & kept, bits) : source(0) & kept;
    }
    case Rule::Shuffle:
        return shuffled(width);
    case Rule::Warp:
        return of_warp(false, width);
    case Rule::Ballot:
        return of_warp(true, width);
    default:
        return whole(width);
    }
}

uint64_t Lane::result(unsigned i) const {
    return by_rule(flow_.rule, i, results_[i].width) & all_bits(results_[i].width);
}

} // namespace

void propagate(const ptx::Warp &warp, const ptx::Step &step, const Flow &flow,
               const Registers &registers, std::vector<Result> &results) {
    const Part *parts = warp.frame->code->parts.data() + flow.begin;
    uint32_t origin = 0;
    for (unsigned i = 0; i < flow.sources && !origin; i++)
        origin = registers.origin(parts[flow.results + i]);
    for (unsigned i = 0; i < flow.results; i++) {
        Result &result = results.emplace_back();
        result.part = parts[i];
        for (unsigned lane = 0; lane < warp_size && origin; lane++) {
            result.masks[lane] = Lane(warp, step, flow, parts, registers, lane).result(i);
            if (result.masks[lane])
                result.origin = origin;
        }
    }
}

} // namespace soft::check
