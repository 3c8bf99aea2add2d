// How often each value of a byte occurs: counted by each block in shared memory, then added up.

typedef unsigned char byte;
typedef unsigned int word;
typedef unsigned long long count_t;

static __device__ void count_word(word *bins, word bytes)
{
    atomicAdd(&bins[bytes & 255], 1u);
    atomicAdd(&bins[bytes >> 8 & 255], 1u);
    atomicAdd(&bins[bytes >> 16 & 255], 1u);
    atomicAdd(&bins[bytes >> 24], 1u);
}

// Adds to the 256 `bins`, for any address and any number of threads and blocks. A block may count
// less than 2**32 bytes. Loads have 16 bytes; at both ends, bytes are loaded one by one.
extern "C" __global__ void histogram(const byte *data, count_t count, count_t *bins)
{
    __shared__ word own[256];
    for (word value = threadIdx.x; value < 256; value += blockDim.x)
        own[value] = 0;
    __syncthreads();

    count_t thread = (count_t)blockIdx.x * blockDim.x + threadIdx.x;
    count_t threads = (count_t)gridDim.x * blockDim.x;
    count_t before = min(count, -(count_t)data & 15);
    count_t quads = (count - before) / 16;
    count_t after = before + quads * 16;
    const uint4 *middle = (const uint4 *)(data + before);

    for (count_t i = thread; i < before; i += threads)
        atomicAdd(&own[data[i]], 1u);
    for (count_t i = thread; i < quads; i += threads) {
        uint4 quad = middle[i];
        count_word(own, quad.x);
        count_word(own, quad.y);
        count_word(own, quad.z);
        count_word(own, quad.w);
    }
    for (count_t i = after + thread; i < count; i += threads)
        atomicAdd(&own[data[i]], 1u);

    __syncthreads();
    for (word value = threadIdx.x; value < 256; value += blockDim.x)
        if (own[value])
            atomicAdd(&bins[value], (count_t)own[value]);
}
