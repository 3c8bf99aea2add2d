// After how many steps of z = z * z + c a point c leaves the circle of radius 2.

// Multiplications and additions are rounded one by one (no fused ones), so that the numbers of
// steps are the same as in any other IEEE arithmetic.
extern "C" __global__ void mandelbrot(unsigned short *steps, unsigned int rows, unsigned int columns,
                                      double left, double top, double distance, int most)
{
    unsigned int column = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns)
        return;
    double real = __dadd_rn(left, __dmul_rn(column, distance));
    double imaginary = __dadd_rn(top, -__dmul_rn(row, distance));
    double x = 0.0, y = 0.0;
    int step = 0;
    for (; step < most; ++step) {
        double xx = __dmul_rn(x, x), yy = __dmul_rn(y, y);
        if (__dadd_rn(xx, yy) > 4.0)
            break;
        y = __dadd_rn(__dmul_rn(__dadd_rn(x, x), y), imaginary);
        x = __dadd_rn(__dadd_rn(xx, -yy), real);
    }
    steps[row * columns + column] = step;
}
