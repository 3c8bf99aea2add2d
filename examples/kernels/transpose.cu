// Rows become columns, in tiles, so that both reads and writes go along rows.

#define TILE 32
#define ROWS 8

// Blocks of TILE x ROWS threads. The extra column of `tile` avoids bank conflicts.
extern "C" __global__ void transpose(const float *data, float *result, unsigned int rows,
                                     unsigned int columns)
{
    __shared__ float tile[TILE][TILE + 1];
    unsigned int column = blockIdx.x * TILE + threadIdx.x;
    unsigned int row = blockIdx.y * TILE + threadIdx.y;
    for (unsigned int i = 0; i < TILE; i += ROWS)
        if (row + i < rows && column < columns)
            tile[threadIdx.y + i][threadIdx.x] = data[(row + i) * columns + column];
    __syncthreads();
    column = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    for (unsigned int i = 0; i < TILE; i += ROWS)
        if (row + i < columns && column < rows)
            result[(row + i) * rows + column] = tile[threadIdx.x][threadIdx.y + i];
}
