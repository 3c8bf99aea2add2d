// Kernels for cooperative launches, in which blocks wait for each other: this_grid().sync().
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// In each round, every thread adds 1 to the counter of the round, and reads it after a grid sync.
extern "C" __global__ void rounds(unsigned *counts, unsigned *sums, unsigned count) {
    cg::grid_group grid = cg::this_grid();
    unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned i = 0; i < count; i++) {
        atomicAdd(&counts[i], 1);
        grid.sync();
        sums[me] += counts[i];
    }
}

extern "C" __global__ void is_valid(unsigned *valid) { *valid = cg::this_grid().is_valid(); }
