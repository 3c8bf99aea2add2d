// Running sums: element i becomes the sum of elements 0 to i. In steps, for any length.

// The running sums in each block, and its total. Blocks have a multiple of 32 threads, up to 1024.
// `data` and `result` may be the same.
extern "C" __global__ void scan_blocks(const int *data, int *result, int *totals,
                                       unsigned int count)
{
    __shared__ int warps[32];
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = i < count ? data[i] : 0;
    for (unsigned int distance = 1; distance < 32; distance *= 2) {
        int before = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance)
            sum += before;
    }
    if (lane == 31)
        warps[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        int total = lane < blockDim.x / 32 ? warps[lane] : 0;
        for (unsigned int distance = 1; distance < 32; distance *= 2) {
            int before = __shfl_up_sync(0xffffffffu, total, distance);
            if (lane >= distance)
                total += before;
        }
        warps[lane] = total;
    }
    __syncthreads();
    if (warp > 0)
        sum += warps[warp - 1];
    if (i < count)
        result[i] = sum;
    if (threadIdx.x == blockDim.x - 1)
        totals[blockIdx.x] = sum;
}

// Adds to each block the sum of all blocks before it: the running sums of their totals.
extern "C" __global__ void add_totals(int *result, const int *totals, unsigned int count)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x > 0 && i < count)
        result[i] += totals[blockIdx.x - 1];
}
