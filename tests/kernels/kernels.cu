struct Point { float x, y; int n; double z; };
__device__ unsigned int counter[4];
__constant__ float scale[2];
__managed__ int flag_value;
extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void add_into(unsigned int *a, const unsigned int *b, const unsigned int *c, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i] + c[i];
}
extern "C" __global__ void store(unsigned char *out, unsigned char b, short s, int i, long long l, float f, double d, Point p) {
    *(unsigned char *)out = b; *(short *)(out + 2) = s; *(int *)(out + 4) = i; *(long long *)(out + 8) = l;
    *(float *)(out + 16) = f; *(double *)(out + 24) = d; *(Point *)(out + 32) = p;
}
__device__ __noinline__ void bump(unsigned int by) { atomicAdd(&counter[0], by); }
extern "C" __global__ void count(unsigned int by) { bump(by); }
extern "C" __global__ void scaled(float *x) { x[threadIdx.x] *= scale[1]; }
extern "C" __global__ void set_managed(int v) { flag_value = v; }
extern "C" __global__ void nothing() {}
extern "C" __global__ void reverse(unsigned int *x) { extern __shared__ unsigned int s[]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x]; }
extern "C" __global__ void spin(volatile unsigned int *flag, unsigned int *out) { while (*flag == 0) {} *out = *flag; }
extern "C" __global__ void follow(unsigned int **pp) { (*pp)[threadIdx.x] = threadIdx.x; }
extern "C" __global__ void out_of_bounds(unsigned int *x) { x[1ull << 40] = 1; }
