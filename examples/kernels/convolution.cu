// A 2-D convolution with a filter that the host puts into constant memory.

#define RADIUS 2
#define SIZE (2 * RADIUS + 1)

__constant__ float filter[SIZE * SIZE];

// One pixel for each thread. Outside of the image, the nearest pixel in the image is used.
extern "C" __global__ void convolve(const float *image, float *result, int rows, int columns)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns)
        return;
    float sum = 0.0f;
    for (int i = 0; i < SIZE; ++i) {
        int y = min(max(row + i - RADIUS, 0), rows - 1);
        for (int j = 0; j < SIZE; ++j) {
            int x = min(max(column + j - RADIUS, 0), columns - 1);
            sum += filter[i * SIZE + j] * image[y * columns + x];
        }
    }
    result[row * columns + column] = sum;
}
