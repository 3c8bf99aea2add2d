// An X-ray of a volume: parallel rays go through it, and each adds what it meets. The volume is a
// 3-D texture with linear filtering and a border of zeros. One ray for each thread.

extern "C" __global__ void march(cudaTextureObject_t volume, float *image, int size, int steps,
                                 float cosine, float sine)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= size || column >= size)
        return;
    float middle = size / 2.0f, step = float(size) / steps, total = 0;
    float across = column + 0.5f - middle;
    for (int i = 0; i < steps; ++i) {
        float along = (i + 0.5f) * step - middle;
        float x = middle + across * cosine - along * sine;
        float z = middle + across * sine + along * cosine;
        total += tex3D<float>(volume, x, row + 0.5f, z);
    }
    image[row * size + column] = total * step;
}
