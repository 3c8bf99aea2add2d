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

// Adds to `bins`, 256 of them. Any number of threads, of blocks and of bytes below 2**32, from any
// address: 16 bytes a load in the middle, single ones before and after.
extern "C" __global__ void histogram(const byte *data, word count, count_t *bins)
{
    __shared__ word own[256];
    for (word value = threadIdx.x; value < 256; value += blockDim.x)
        own[value] = 0;
    __syncthreads();

    word thread = blockIdx.x * blockDim.x + threadIdx.x;
    word threads = gridDim.x * blockDim.x;
    word before = min(count, (word)(-(count_t)data & 15));
    word quads = (count - before) / 16;
    word after = before + quads * 16;
    const uint4 *middle = (const uint4 *)(data + before);

    for (word i = thread; i < before; i += threads)
        atomicAdd(&own[data[i]], 1u);
    for (word i = thread; i < quads; i += threads) {
        uint4 quad = middle[i];
        count_word(own, quad.x);
        count_word(own, quad.y);
        count_word(own, quad.z);
        count_word(own, quad.w);
    }
    for (word i = after + thread; i < count; i += threads)
        atomicAdd(&own[data[i]], 1u);

    __syncthreads();
    for (word value = threadIdx.x; value < 256; value += blockDim.x)
        if (own[value])
            atomicAdd(&bins[value], (count_t)own[value]);
}
