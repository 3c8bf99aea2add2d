// C = A * B, row by row in memory, in tiles that a block holds in shared memory.

#define TILE 16

// A is rows x inner, B is inner x columns. Blocks of TILE x TILE threads, one for each tile of C.
extern "C" __global__ void matmul(const float *a, const float *b, float *c, unsigned int rows,
                                  unsigned int inner, unsigned int columns)
{
    __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
    unsigned int x = threadIdx.x, y = threadIdx.y;
    unsigned int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0.0f;
    for (unsigned int from = 0; from < inner; from += TILE) {
        // Outside of the matrices there are zeros, which add nothing.
        tile_a[y][x] = row < rows && from + x < inner ? a[row * inner + from + x] : 0.0f;
        tile_b[y][x] = column < columns && from + y < inner ? b[(from + y) * columns + column] : 0.0f;
        __syncthreads();
        for (unsigned int i = 0; i < TILE; ++i)
            sum += tile_a[y][i] * tile_b[i][x];
        __syncthreads();
    }
    if (row < rows && column < columns)
        c[row * columns + column] = sum;
}
