#include "ptx/special.h"

#include "ptx/machine.h"

#include <ctime>

namespace soft::ptx {

namespace {

using Value = uint64_t (*)(const Machine &, const Warp &, unsigned);

template <int dimension> uint64_t tid(const Machine &machine, const Warp &warp, unsigned lane) {
    unsigned index[3];
    machine.thread_index(warp, lane, index);
    return index[dimension];
}
template <int dimension> uint64_t ntid(const Machine &machine, const Warp &, unsigned) {
    return machine.launch.block[dimension];
}
template <int dimension> uint64_t ctaid(const Machine &, const Warp &warp, unsigned) {
    return warp.block.index[dimension];
}
template <int dimension> uint64_t nctaid(const Machine &machine, const Warp &, unsigned) {
    return machine.launch.grid[dimension];
}
template <int dimension> uint64_t clusterid(const Machine &machine, const Warp &warp, unsigned) {
    return warp.block.index[dimension] / machine.launch.cluster[dimension];
}
template <int dimension> uint64_t nclusterid(const Machine &machine, const Warp &, unsigned) {
    return machine.launch.grid[dimension] / machine.launch.cluster[dimension];
}
template <int dimension>
uint64_t cluster_ctaid(const Machine &machine, const Warp &warp, unsigned) {
    return warp.block.index[dimension] % machine.launch.cluster[dimension];
}
template <int dimension> uint64_t cluster_nctaid(const Machine &machine, const Warp &, unsigned) {
    return machine.launch.cluster[dimension];
}
uint64_t cluster_ctarank(const Machine &machine, const Warp &warp, unsigned) {
    return rank_in_cluster(machine, warp);
}
uint64_t cluster_nctarank(const Machine &machine, const Warp &, unsigned) {
    const unsigned *cluster = machine.launch.cluster;
    return uint64_t{cluster[0]} * cluster[1] * cluster[2];
}
uint64_t is_explicit_cluster(const Machine &machine, const Warp &warp, unsigned lane) {
    return cluster_nctarank(machine, warp, lane) > 1;
}
uint64_t zero(const Machine &, const Warp &, unsigned) { return 0; }
// The upper and the lower half of the address of a cooperative launch's workspace. NVIDIA's
// cooperative_groups library reads them from %envreg1 and %envreg2.
uint64_t workspace_high(const Machine &machine, const Warp &, unsigned) {
    return machine.launch.workspace >> 32;
}
uint64_t workspace_low(const Machine &machine, const Warp &, unsigned) {
    return uint32_t(machine.launch.workspace);
}
uint64_t laneid(const Machine &, const Warp &, unsigned lane) { return lane; }
uint64_t warpid(const Machine &, const Warp &warp, unsigned) { return warp.number; }
uint64_t nwarpid(const Machine &, const Warp &, unsigned) { return 2048 / warp_size; }
uint64_t gridid(const Machine &machine, const Warp &, unsigned) { return machine.launch.id; }
uint64_t nsmid(const Machine &machine, const Warp &, unsigned) { return machine.launch.processors; }
uint64_t smid(const Machine &machine, const Warp &warp, unsigned) {
    return warp.block.number % machine.launch.processors;
}
uint64_t lanemask_eq(const Machine &, const Warp &, unsigned lane) { return uint64_t{1} << lane; }
uint64_t lanemask_lt(const Machine &, const Warp &, unsigned lane) {
    return (uint64_t{1} << lane) - 1;
}
uint64_t lanemask_le(const Machine &, const Warp &, unsigned lane) {
    return (uint64_t{2} << lane) - 1;
}
uint64_t lanemask_gt(const Machine &machine, const Warp &warp, unsigned lane) {
    return uint32_t(~lanemask_le(machine, warp, lane));
}
uint64_t lanemask_ge(const Machine &machine, const Warp &warp, unsigned lane) {
    return uint32_t(~lanemask_lt(machine, warp, lane));
}
uint64_t used_smem(const Machine &machine) {
    return machine.launch.kernel->shared_bytes + machine.launch.shared_bytes;
}
// An H200 rounds the first of these two, but not the second one.
uint64_t total_smem(const Machine &machine, const Warp &, unsigned) {
    return round_up(used_smem(machine), 128);
}
uint64_t aggregate_smem(const Machine &machine, const Warp &, unsigned) {
    return used_smem(machine) + reserved_shared_bytes;
}
uint64_t dynamic_smem(const Machine &machine, const Warp &, unsigned) {
    return machine.launch.shared_bytes;
}

// The part of shared memory that is reserved for NVIDIA's software. cooperative_groups keeps the
// barriers of tiles of several warps at %reserved_smem_offset_1; it expects 288 bytes there, which
// are zeros when a block starts.
uint64_t reserved_begin(const Machine &machine, const Warp &, unsigned) {
    return machine.reserved_begin;
}
uint64_t reserved_middle(const Machine &machine, const Warp &, unsigned) {
    return machine.reserved_begin + reserved_shared_bytes / 2;
}
uint64_t reserved_end(const Machine &machine, const Warp &, unsigned) {
    return machine.reserved_begin + reserved_shared_bytes;
}
uint64_t reserved_capacity(const Machine &, const Warp &, unsigned) {
    return reserved_shared_bytes;
}

uint64_t clock_cycles(const Machine &machine, const Warp &) { return machine.cycles(); }
uint64_t clock_high(const Machine &machine, const Warp &) { return machine.cycles() >> 32; }
uint64_t nanoseconds(const Machine &, const Warp &) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}
uint64_t nanoseconds_high(const Machine &machine, const Warp &warp) {
    return nanoseconds(machine, warp) >> 32;
}

#define SOFT_THREE(name, function, of_block)                                                       \
    {name ".x", 4, function<0>, nullptr, of_block},                                                \
        {name ".y", 4, function<1>, nullptr, of_block}, {                                          \
        name ".z", 4, function<2>, nullptr, of_block                                               \
    }

const Special specials[] = {
    SOFT_THREE("%tid", tid, false),
    SOFT_THREE("%ntid", ntid, false),
    SOFT_THREE("%ctaid", ctaid, true),
    SOFT_THREE("%nctaid", nctaid, false),
    SOFT_THREE("%clusterid", clusterid, true),
    SOFT_THREE("%nclusterid", nclusterid, false),
    SOFT_THREE("%cluster_ctaid", cluster_ctaid, true),
    SOFT_THREE("%cluster_nctaid", cluster_nctaid, false),
    {"%cluster_ctarank", 4, cluster_ctarank, nullptr, true},
    {"%cluster_nctarank", 4, cluster_nctarank, nullptr, false},
    {"%is_explicit_cluster", 0, is_explicit_cluster, nullptr, false},
    {"%laneid", 4, laneid, nullptr, false},
    {"%warpid", 4, warpid, nullptr, false},
    {"%nwarpid", 4, nwarpid, nullptr, false},
    {"%smid", 4, smid, nullptr, true},
    {"%nsmid", 4, nsmid, nullptr, false},
    {"%gridid", 8, gridid, nullptr, false},
    {"%lanemask_eq", 4, lanemask_eq, nullptr, false},
    {"%lanemask_lt", 4, lanemask_lt, nullptr, false},
    {"%lanemask_le", 4, lanemask_le, nullptr, false},
    {"%lanemask_gt", 4, lanemask_gt, nullptr, false},
    {"%lanemask_ge", 4, lanemask_ge, nullptr, false},
    {"%total_smem_size", 4, total_smem, nullptr, false},
    {"%aggr_smem_size", 4, aggregate_smem, nullptr, false},
    {"%dynamic_smem_size", 4, dynamic_smem, nullptr, false},
    {"%reserved_smem_offset_begin", 4, reserved_begin, nullptr, false},
    {"%reserved_smem_offset_end", 4, reserved_end, nullptr, false},
    {"%reserved_smem_offset_cap", 4, reserved_capacity, nullptr, false},
    {"%reserved_smem_offset_0", 4, reserved_begin, nullptr, false},
    {"%reserved_smem_offset_1", 4, reserved_middle, nullptr, false},
    {"%current_graph_exec", 8, zero, nullptr, false},
    {"%envreg1", 4, workspace_high, nullptr, false},
    {"%envreg2", 4, workspace_low, nullptr, false},
    {"%clock", 4, nullptr, clock_cycles, false},
    {"%clock_hi", 4, nullptr, clock_high, false},
    {"%clock64", 8, nullptr, clock_cycles, false},
    {"%globaltimer", 8, nullptr, nanoseconds, false},
    {"%globaltimer_lo", 4, nullptr, nanoseconds, false},
    {"%globaltimer_hi", 4, nullptr, nanoseconds_high, false},
};

const Special always_zero = {"%envreg", 4, zero, nullptr, false};

bool starts_with(std::string_view text, std::string_view beginning) {
    return text.substr(0, beginning.size()) == beginning;
}

} // namespace

bool is_in_reserved_shared(const Special &special) {
    return starts_with(special.name, "%reserved_smem_");
}

bool is_time(const Special &special) { return starts_with(special.name, "%globaltimer"); }

unsigned rank_in_cluster(const Machine &machine, const Warp &warp) {
    const unsigned *cluster = machine.launch.cluster, *index = warp.block.index;
    return index[0] % cluster[0] +
           cluster[0] * (index[1] % cluster[1] + cluster[1] * (index[2] % cluster[2]));
}

const Special *find_special(std::string_view name) {
    for (const Special &special : specials)
        if (name == special.name)
            return &special;
    // The fourth component of a vector has no meaning.
    bool is_fourth = name.size() > 2 && name.substr(name.size() - 2) == ".w";
    if (starts_with(name, "%envreg") || is_fourth)
        return &always_zero;
    return nullptr;
}

} // namespace soft::ptx
