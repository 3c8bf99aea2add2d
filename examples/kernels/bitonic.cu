// Bitonic sort of a power of two of ints, ascending. A thread exchanges two of them at a time.

#define BLOCK 1024 // ints that a block sorts in shared memory, with half as many threads

// Sorts two ints that are `distance` apart. The step makes sorted runs of `run` ints, which are
// ascending and descending in turn.
static __device__ void exchange(int *data, unsigned int i, unsigned int first, unsigned int distance,
                                unsigned int run)
{
    unsigned int low = 2 * i - (i & (distance - 1)), high = low + distance;
    bool ascending = ((first + low) & run) == 0;
    int a = data[low], b = data[high];
    if ((a > b) == ascending) {
        data[low] = b;
        data[high] = a;
    }
}

// All steps for runs from `shortest` to `longest` in which distances are less than BLOCK.
extern "C" __global__ void sort_shared(int *data, unsigned int shortest, unsigned int longest)
{
    __shared__ int part[BLOCK];
    unsigned int thread = threadIdx.x, first = blockIdx.x * BLOCK;
    part[thread] = data[first + thread];
    part[thread + BLOCK / 2] = data[first + thread + BLOCK / 2];
    for (unsigned int run = shortest; run <= longest; run *= 2)
        for (unsigned int distance = min(run, BLOCK) / 2; distance > 0; distance /= 2) {
            __syncthreads();
            exchange(part, thread, first, distance, run);
        }
    __syncthreads();
    data[first + thread] = part[thread];
    data[first + thread + BLOCK / 2] = part[thread + BLOCK / 2];
}

// One step, for ints that are further apart than a block of shared memory reaches.
extern "C" __global__ void sort_global(int *data, unsigned int distance, unsigned int run)
{
    exchange(data, blockIdx.x * blockDim.x + threadIdx.x, 0, distance, run);
}
