#include "check/step_addresses.h"

#include "ptx/access.h"
#include "ptx/lanes.h"

#include <algorithm>

namespace soft::check {

using ptx::Space;
using ptx::warp_size;

namespace {

constexpr uint32_t all_lanes = ~uint32_t{0};

template <class A> SOFT_INLINE void add_offset(const A *row, uint64_t offset, uint64_t *to) {
    SOFT_EVERY_LANE
    for (int lane = 0; lane < warp_size; lane++)
        to[lane] = uint64_t(row[lane]) + offset;
}

SOFT_INLINE bool at_equal_distances(const uint64_t *addresses) {
    uint64_t expected = addresses[0], stride = addresses[1] - expected, wrong = 0;
    for (int lane = 0; lane < warp_size; lane++, expected += stride)
        wrong |= addresses[lane] ^ expected;
    return !wrong && int64_t(stride) >= 0;
}

SOFT_INLINE void take(const ptx::Warp &warp, const ptx::Step &step, size_t bytes, uint64_t *to) {
    if (bytes == 4)
        add_offset(warp.row<uint32_t>(step.rows[9]), uint64_t(step.offset), to);
    else
        add_offset(warp.row<uint64_t>(step.rows[9]), uint64_t(step.offset), to);
}

// Sets the distances from each lane to the next one. Returns the lanes that have the same distance
// as the next lane.
SOFT_INLINE uint32_t find_distances(const uint64_t *addresses, uint64_t *distances) {
    for (int lane = 0; lane < warp_size; lane++)
        distances[lane] = addresses[lane + 1] - addresses[lane];
    uint32_t same = 0;
    for (int lane = 0; lane < warp_size; lane++)
        same |= distances[lane] == distances[lane + 1] ? ptx::lane_bits[lane] : 0;
    constexpr uint32_t known = ~uint32_t{0} >> 2; // the distances of lanes 31 and 32 are unknown
    return same & known;
}
uint32_t distances(const uint64_t *addresses, uint64_t *to) {
    return find_distances(addresses, to);
}
SOFT_AVX2 uint32_t distances_avx2(const uint64_t *addresses, uint64_t *to) {
    return find_distances(addresses, to);
}
const auto distances_of = ptx::has_avx2() ? distances_avx2 : distances;

// Takes the addresses of all lanes, and returns whether they are at equal distances.
bool take_all(const ptx::Warp &warp, const ptx::Step &step, size_t bytes, uint64_t *to) {
    take(warp, step, bytes, to);
    return at_equal_distances(to);
}
SOFT_AVX2 bool take_all_avx2(const ptx::Warp &warp, const ptx::Step &step, size_t bytes,
                             uint64_t *to) {
    take(warp, step, bytes, to);
    return at_equal_distances(to);
}
const auto taken = ptx::has_avx2() ? take_all_avx2 : take_all;

} // namespace

void Addresses::find(const ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect,
                     uint32_t lanes) {
    step_ = &step;
    lanes_ = lanes;
    is_regular_ = taken(warp, step, effect.address_bytes, addresses_.data()) && lanes == all_lanes;
    in_one_space_ = true;
    space_ = effect.space;
    if (space_ == Space::Generic)
        find_spaces(lanes);
    is_regular_ = is_regular_ && in_one_space_;
    runs_count_ = 0;
}

void Addresses::find_runs() const {
    if (!is_regular_)
        return lanes_ == all_lanes ? find_runs_of_all() : find_runs_of_some();
    runs_[0] = {addresses_[0], addresses_[1] - addresses_[0], all_lanes, warp_size};
    runs_count_ = 1;
}

// Replaces generic addresses, so that each byte has only one address.
void Addresses::find_spaces(uint32_t lanes) {
    uint64_t any = 0;
    for (uint32_t left = lanes; left; left &= left - 1)
        any |= addresses_[__builtin_ctz(left)];
    space_ = Space::Global;
    if (any < ptx::window_bytes)
        return; // fast path: all are global
    for (uint32_t left = lanes; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        spaces_[lane] = ptx::narrow_generic(addresses_[lane]);
        space_ = left == lanes ? spaces_[lane] : space_;
        in_one_space_ = in_one_space_ && spaces_[lane] == space_;
    }
}

void Addresses::find_runs_of_all() const {
    uint32_t same = distances_of(addresses_.data(), distances_.data());
    for (unsigned lane = 0, count; lane < warp_size; lane += count) {
        uint64_t stride = distances_[lane];
        bool alone = lane == warp_size - 1 || int64_t(stride) < 0;
        count = alone ? 1 : 2 + unsigned(__builtin_ctz(~(same >> lane)));
        runs_[runs_count_++] = {addresses_[lane], alone ? 0 : stride,
                                (all_lanes >> (warp_size - count)) << lane, count};
    }
}

void Addresses::find_runs_of_some() const {
    Run run;
    uint64_t before = 0;
    for (uint32_t left = lanes_; left; left &= left - 1) {
        uint64_t address = addresses_[__builtin_ctz(left)], stride = address - before;
        before = address;
        if (run.count == 1 && int64_t(stride) >= 0)
            run.stride = stride;
        else if (run.count < 2 || stride != run.stride) {
            if (run.count)
                runs_[runs_count_++] = run;
            run = {address, 0, 0, 0};
        }
        run.lanes |= left & -left;
        run.count++;
    }
    runs_[runs_count_++] = run;
}

} // namespace soft::check
