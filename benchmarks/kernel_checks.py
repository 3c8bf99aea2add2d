"""What the checks inside kernels cost: how many times longer a checked launch takes.

    python benchmarks/kernel_checks.py [--rounds N]

It needs the software driver and a compiler (NVRTC or nvcc). Each figure is the least processor time
of some launches in one thread; checked and unchecked ones are measured in one run.
"""

import argparse
import time

import numpy as np

import cudadrv as cu
from cudadrv import testing, toolkit

SOURCE = r"""
extern "C" __global__ void neighbours(float *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x + 1;
    if (i < n - 1)
        out[i] = in[i - 1] + in[i] + in[i + 1];
}
extern "C" __global__ void reduce(float *sum, const float *in, int n)
{
    __shared__ float part[256];
    int t = threadIdx.x;
    float own = 0;
    for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256)
        own += in[i];
    part[t] = own;
    __syncthreads();
    for (int half = 128; half; half >>= 1) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    if (!t)
        atomicAdd(sum, part[0]);
}
extern "C" __global__ void histogram(int *bins, const unsigned *in, int n)
{
    __shared__ int own[64];
    int t = threadIdx.x;
    if (t < 64)
        own[t] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256)
        atomicAdd(&own[in[i] & 63], 1);
    __syncthreads();
    if (t < 64)
        atomicAdd(&bins[t], own[t]);
}
extern "C" __global__ void matmul(float *c, const float *a, const float *b, int n)
{
    __shared__ float s[16][16], t[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        s[y][x] = a[row * n + k + x];
        t[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; i++)
            sum += s[y][i] * t[i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
extern "C" __global__ void tickets(float *out, float *part, unsigned *ticket)
{
    __shared__ int last;
    part[blockIdx.x * 32 + threadIdx.x] = 1;
    __syncthreads();
    if (!threadIdx.x) {
        __threadfence();
        last = atomicAdd(ticket, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last) {
        float sum = 0;
        for (int block = 0; block < 100; block++)
            sum += part[block * 32 + threadIdx.x];
        out[threadIdx.x] = sum;
        if (!threadIdx.x)
            *ticket = 0;
    }
}
"""
ITEMS, SIDE, BLOCKS = 1 << 20, 256, 1 << 16


def launches():
    """The grid, the block and the arguments of each kernel; "scattered" is a histogram."""
    floats, words = (cu.DeviceBuffer.zeros(2 * ITEMS, dtype) for dtype in ("f4", "u4"))
    a, b, c = (cu.DeviceBuffer.zeros(SIDE * SIDE, "f4") for _ in range(3))
    out, bins = cu.DeviceBuffer.zeros(ITEMS, "f4"), cu.DeviceBuffer.zeros(64, "i4")
    items = np.random.default_rng(1).integers(0, 64, ITEMS, np.uint32)
    scattered = cu.DeviceBuffer.from_array(items)
    tiles = (SIDE // 16, SIDE // 16)
    return {
        "neighbours": (ITEMS // 256, 256, out, floats, np.int32(ITEMS)),
        "reduce": (64, 256, out, floats, np.int32(ITEMS)),
        "histogram": (64, 256, bins, words, np.int32(ITEMS)),
        "scattered": (64, 256, bins, scattered, np.int32(ITEMS)),
        "matmul": (tiles, (16, 16), c, a, b, np.int32(SIDE)),
        "tickets": (BLOCKS, 32, out, floats, words),
    }


CHECKS = ("race", "init", "sync", "all")


def seconds(kernel, launch, stream):
    began = time.process_time()
    kernel.launch(*launch, stream=stream)
    stream.synchronize()
    return time.process_time() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    rounds = parser.parse_args().rounds
    module = cu.Module(toolkit.compile(SOURCE))
    print(f"| kernel | off, ms | {' | '.join(CHECKS)} |\n|---|---|{'---|' * len(CHECKS)}")
    with cu.Stream() as stream:
        for name in launches():
            times = []
            kernel = module["histogram" if name == "scattered" else name]
            for checks in ("off", *CHECKS):
                with testing.configured(f"checks={checks},threads=1"):
                    launch = launches()[name]  # the check has to see how the memory is written
                    times.append(min(seconds(kernel, launch, stream) for _ in range(rounds)))
            if found := testing.hazards():
                raise SystemExit(found[0].text)
            row = " | ".join(f"{checked / times[0]:.1f}" for checked in times[1:])
            print(f"| {name} | {times[0] * 1e3:.1f} | {row} |", flush=True)


if __name__ == "__main__":
    main()
