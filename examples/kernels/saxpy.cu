// y = a * x + y, one element for each thread.

extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned int count)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        y[i] = a * x[i] + y[i];
}
