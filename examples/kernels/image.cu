// Blur and edges of a picture: rows of pixels, each of three bytes (red, green, blue). All numbers
// are integers, so that every device has the same result. One pixel for each thread. Outside of the
// picture, the nearest pixel in the picture is used.

typedef unsigned char byte;

static __device__ int at(int i, int count) { return min(max(i, 0), count - 1); }

// Gaussian blur, 5 x 5, of each colour.
extern "C" __global__ void blur(const byte *picture, byte *result, int rows, int columns)
{
    const int weights[5] = {1, 4, 6, 4, 1};
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns)
        return;
    int red = 128, green = 128, blue = 128; // the weights add up to 256: round, do not cut off
    for (int i = 0; i < 5; ++i)
        for (int j = 0; j < 5; ++j) {
            int y = at(row + i - 2, rows), x = at(column + j - 2, columns);
            const byte *pixel = picture + 3ll * (y * columns + x);
            int weight = weights[i] * weights[j];
            red += weight * pixel[0];
            green += weight * pixel[1];
            blue += weight * pixel[2];
        }
    byte *target = result + 3ll * (row * columns + column);
    target[0] = red >> 8;
    target[1] = green >> 8;
    target[2] = blue >> 8;
}

static __device__ int brightness(const byte *picture, int row, int column, int rows, int columns)
{
    const byte *pixel = picture + 3ll * (at(row, rows) * columns + at(column, columns));
    return (77 * pixel[0] + 150 * pixel[1] + 29 * pixel[2]) >> 8;
}

// The gradient of the brightness, by the Sobel operator: one byte for each pixel.
extern "C" __global__ void edges(const byte *picture, byte *result, int rows, int columns)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns)
        return;
    int across = 0, down = 0;
    for (int i = -1; i <= 1; ++i) {
        int weight = i == 0 ? 2 : 1;
        across += weight * brightness(picture, row + i, column + 1, rows, columns);
        across -= weight * brightness(picture, row + i, column - 1, rows, columns);
        down += weight * brightness(picture, row + 1, column + i, rows, columns);
        down -= weight * brightness(picture, row - 1, column + i, rows, columns);
    }
    float steepness = sqrtf((float)(across * across + down * down));
    result[row * columns + column] = min((int)steepness, 255);
}
