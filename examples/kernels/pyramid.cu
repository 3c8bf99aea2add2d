// One level of an image pyramid: blurs a part of a picture and keeps every second pixel of every
// second row. A row of the part has two pixels of its neighbours before it and after it. Above and
// below the picture, the nearest row is used. All numbers are integers, so that every device has the
// same result. One pixel of the result for each thread.

typedef unsigned char byte;

extern "C" __global__ void halve(const byte *picture, int pitch, byte *result, int result_pitch,
                                 int rows, int columns)
{
    const int weights[5] = {1, 4, 6, 4, 1};
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns)
        return;
    int sum = 128; // the weights add up to 256: round, do not cut off
    for (int i = 0; i < 5; ++i)
        for (int j = 0; j < 5; ++j) {
            int y = min(max(2 * row + i - 2, 0), 2 * rows - 1);
            sum += weights[i] * weights[j] * picture[(long long)y * pitch + 2 * column + j];
        }
    result[(long long)row * result_pitch + column + 2] = sum >> 8;
}
