// Tiles of several warps: cooperative_groups keeps their barriers in reserved shared memory.
#define _CG_ABI_EXPERIMENTAL
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// Each tile of 64 threads sums up its items, and passes on an item through shared memory.
extern "C" __global__ void sums(int *sums, int *neighbours, const int *items) {
    __shared__ int passed[256];
    __shared__ cg::block_tile_memory<256> scratch;
    cg::thread_block block = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<64>(block);
    unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < 3; round++) {
        sums[me] = cg::reduce(tile, items[me], cg::plus<int>());
        passed[threadIdx.x] = items[me] + round;
        tile.sync();
        neighbours[me] = passed[threadIdx.x ^ 63];
        tile.sync();
    }
}
