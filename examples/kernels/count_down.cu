// The kernel of docs/graphs.md: the number that is left becomes the condition of a graph.

extern "C" __device__ void cudaGraphSetConditional(unsigned long long condition, unsigned value);

extern "C" __global__ void count_down(unsigned *left, unsigned long long condition) {
    *left -= 1;
    cudaGraphSetConditional(condition, *left);
}
