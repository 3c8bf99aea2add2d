// The kernel of docs/graphs.md: the condition of a graph is what is left.

extern "C" __device__ void cudaGraphSetConditional(unsigned long long condition, unsigned value);

extern "C" __global__ void count_down(unsigned *left, unsigned long long condition) {
    *left -= 1;
    cudaGraphSetConditional(condition, *left);
}
