// The sum of an array, in two ways that both add pairs: a tree in shared memory, and shuffles.

// Each block writes the sum of its part. Dynamic shared memory: an int for each thread, whose number
// is a power of two.
extern "C" __global__ void sum_shared(const int *data, unsigned int count, int *sums)
{
    extern __shared__ int part[];
    int sum = 0;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x)
        sum += data[i];
    part[threadIdx.x] = sum;
    for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = part[0];
}

static __device__ float sum_of_warp(float value)
{
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_down_sync(0xffffffffu, value, distance);
    return value; // only lane 0 has the sum of the warp
}

// The same with a shuffle for each step in a warp, for a multiple of 32 threads up to 1024.
extern "C" __global__ void sum_shuffle(const float *data, unsigned int count, float *sums)
{
    __shared__ float part[32];
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x)
        sum += data[i];
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = sum_of_warp(threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0)
            sums[blockIdx.x] = sum;
    }
}
