// How many steps of "halve it if it is even, else three times it and one more" lead to 1.

// A function that is called, not inlined. Threads leave its loop at different times.
static __device__ __noinline__ unsigned int steps_to_one(unsigned long long number)
{
    unsigned int steps = 0;
    for (; number > 1; ++steps)
        number = number % 2 ? 3 * number + 1 : number / 2;
    return steps;
}

// A grid-stride loop: any number of threads does the whole array.
extern "C" __global__ void collatz(const unsigned int *numbers, unsigned int *steps,
                                   unsigned int count)
{
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x)
        steps[i] = steps_to_one(numbers[i]);
}
