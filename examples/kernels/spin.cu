// Waits, on the device, until the host writes: memory that both use at the same time.

extern "C" __global__ void wait_then_double(const volatile unsigned int *flag, int *data,
                                            unsigned int count)
{
    if (threadIdx.x == 0) {
        while (*flag == 0) {
        }
        __threadfence_system(); // what the host wrote before the flag is seen after it
    }
    __syncthreads();
    for (unsigned int i = threadIdx.x; i < count; i += blockDim.x)
        data[i] *= 2;
}
