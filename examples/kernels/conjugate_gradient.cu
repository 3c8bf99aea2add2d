// One step of the conjugate gradient method for a tridiagonal matrix: 2 on the diagonal, -1 directly
// above and below it. One block of 256 threads runs, and each thread has one item of each vector.

#define THREADS 256

extern "C" __device__ void cudaGraphSetConditional(unsigned long long condition, unsigned value);

// The sum of a value of each thread.
__device__ static float sum(float value) {
    __shared__ float parts[THREADS];
    parts[threadIdx.x] = value;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            parts[threadIdx.x] += parts[threadIdx.x + half];
    }
    __syncthreads();
    return parts[0];
}

// q = A p, and numbers[1] = p . q
extern "C" __global__ void apply(const float *p, float *q, float *numbers) {
    int i = threadIdx.x;
    q[i] = 2 * p[i] - (i ? p[i - 1] : 0) - (i < THREADS - 1 ? p[i + 1] : 0);
    float total = sum(p[i] * q[i]);
    if (i == 0)
        numbers[1] = total;
}

// x += a p, r -= a q with a = r . r / p . q; p = r + b p; numbers[0] = r . r
extern "C" __global__ void advance(float *x, float *r, float *p, const float *q, float *numbers) {
    int i = threadIdx.x;
    float before = numbers[0], a = before / numbers[1];
    x[i] += a * p[i];
    r[i] -= a * q[i];
    float now = sum(r[i] * r[i]);
    p[i] = r[i] + now / before * p[i];
    if (i == 0)
        numbers[0] = now;
}

// numbers[2] counts the steps; the condition is whether the error is still too large.
extern "C" __global__ void decide(float *numbers, float enough, unsigned long long condition) {
    numbers[2] += 1;
    cudaGraphSetConditional(condition, numbers[0] > enough && numbers[2] < 1000);
}
