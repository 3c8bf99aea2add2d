// Block and warp algorithms of CUB, each in a kernel of one block, for test_race_cub.py. Those that
// run twice use their shared memory again.

#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_shuffle.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_exchange.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cuda/functional>
#include <cuda/std/functional>

#define THREADS 64
#define KERNEL(name) extern "C" __global__ void name(int *out, const int *in)
#define thread threadIdx.x

KERNEL(scan_raking) {
    using Algorithm = cub::BlockScan<int, THREADS, cub::BLOCK_SCAN_RAKING>;
    __shared__ typename Algorithm::TempStorage room;
    int v;
    for (int i = 0; i < 2; i++) {
        Algorithm(room).ExclusiveSum(in[thread], v);
        out[i * THREADS + thread] = v;
        __syncthreads();
    }
}

KERNEL(scan_memoize) {
    using Algorithm = cub::BlockScan<int, THREADS, cub::BLOCK_SCAN_RAKING_MEMOIZE>;
    __shared__ typename Algorithm::TempStorage room;
    int v;
    for (int i = 0; i < 2; i++) {
        Algorithm(room).InclusiveSum(in[thread], v);
        out[i * THREADS + thread] = v;
        __syncthreads();
    }
}

KERNEL(scan_warp) {
    using Algorithm = cub::BlockScan<int, THREADS, cub::BLOCK_SCAN_WARP_SCANS>;
    __shared__ typename Algorithm::TempStorage room;
    int v, a;
    for (int i = 0; i < 2; i++) {
        Algorithm(room).ExclusiveSum(in[thread], v, a);
        out[i * THREADS + thread] = v + a;
        __syncthreads();
    }
}

KERNEL(reduce_raking) {
    using Algorithm = cub::BlockReduce<int, THREADS, cub::BLOCK_REDUCE_RAKING>;
    __shared__ typename Algorithm::TempStorage room;
    for (int i = 0; i < 2; i++) {
        int v = Algorithm(room).Reduce(in[thread], cuda::maximum<>{});
        if (!thread)
            out[i] = v;
        __syncthreads();
    }
}

KERNEL(reduce_commutative) {
    using Algorithm = cub::BlockReduce<int, THREADS, cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY>;
    __shared__ typename Algorithm::TempStorage room;
    for (int i = 0; i < 2; i++) {
        int v = Algorithm(room).Sum(in[thread]);
        if (!thread)
            out[i] = v;
        __syncthreads();
    }
}

KERNEL(reduce_warp) {
    using Algorithm = cub::BlockReduce<int, THREADS, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
    __shared__ typename Algorithm::TempStorage room;
    for (int i = 0; i < 2; i++) {
        int v = Algorithm(room).Sum(in[thread]);
        if (!thread)
            out[i] = v;
        __syncthreads();
    }
}

KERNEL(radix_sort) {
    using Algorithm = cub::BlockRadixSort<unsigned, THREADS, 2>;
    __shared__ typename Algorithm::TempStorage room;
    unsigned v[2] = {(unsigned)in[2 * thread], (unsigned)in[2 * thread + 1]};
    Algorithm(room).Sort(v, 0, 8);
    out[2 * thread] = v[0];
    out[2 * thread + 1] = v[1];
}

KERNEL(merge_sort) {
    using Algorithm = cub::BlockMergeSort<int, THREADS, 2>;
    __shared__ typename Algorithm::TempStorage room;
    int v[2] = {in[2 * thread], in[2 * thread + 1]};
    Algorithm(room).Sort(v, [] __device__(int a, int b) { return a < b; });
    out[2 * thread] = v[0];
    out[2 * thread + 1] = v[1];
}

KERNEL(exchange) {
    using Algorithm = cub::BlockExchange<int, THREADS, 4>;
    __shared__ typename Algorithm::TempStorage room;
    int v[4] = {in[thread], in[THREADS + thread], in[2 * THREADS + thread],
                in[3 * THREADS + thread]};
    Algorithm(room).StripedToBlocked(v, v);
    __syncthreads();
    Algorithm(room).BlockedToStriped(v, v);
    for (int i = 0; i < 4; i++)
        out[i * THREADS + thread] = v[i];
}

KERNEL(exchange_warp_slices) {
    using Algorithm = cub::BlockExchange<int, THREADS, 4, true>;
    __shared__ typename Algorithm::TempStorage room;
    int v[4] = {in[thread], in[THREADS + thread], in[2 * THREADS + thread],
                in[3 * THREADS + thread]};
    Algorithm(room).StripedToBlocked(v, v);
    for (int i = 0; i < 4; i++)
        out[i * THREADS + thread] = v[i];
}

KERNEL(histogram_sort) {
    using Algorithm = cub::BlockHistogram<unsigned char, THREADS, 4, 256, cub::BLOCK_HISTO_SORT>;
    __shared__ typename Algorithm::TempStorage room;
    __shared__ unsigned h[256];
    unsigned char v[4] = {(unsigned char)in[thread], (unsigned char)in[THREADS + thread], 7, 9};
    Algorithm(room).Histogram(v, h);
    __syncthreads();
    for (int i = thread; i < 256; i += THREADS)
        out[i] = h[i];
}

KERNEL(histogram_atomic) {
    using Algorithm = cub::BlockHistogram<unsigned char, THREADS, 4, 256, cub::BLOCK_HISTO_ATOMIC>;
    __shared__ typename Algorithm::TempStorage room;
    __shared__ unsigned h[256];
    unsigned char v[4] = {(unsigned char)in[thread], (unsigned char)in[THREADS + thread], 7, 9};
    Algorithm(room).Histogram(v, h);
    __syncthreads();
    for (int i = thread; i < 256; i += THREADS)
        out[i] = h[i];
}

KERNEL(discontinuity) {
    using Algorithm = cub::BlockDiscontinuity<int, THREADS>;
    __shared__ typename Algorithm::TempStorage room;
    int v[2] = {in[2 * thread], in[2 * thread + 1]}, f[2];
    Algorithm(room).FlagHeads(f, v, cuda::std::not_equal_to<>{});
    out[2 * thread] = f[0];
    out[2 * thread + 1] = f[1];
    __syncthreads();
    Algorithm(room).FlagTails(f, v, cuda::std::not_equal_to<>{});
    out[2 * THREADS + thread] = f[1];
}

KERNEL(adjacent_difference) {
    using Algorithm = cub::BlockAdjacentDifference<int, THREADS>;
    __shared__ typename Algorithm::TempStorage room;
    int v[2] = {in[2 * thread], in[2 * thread + 1]}, f[2];
    Algorithm(room).SubtractLeft(v, f, cuda::std::minus<>{});
    out[2 * thread] = f[0];
    out[2 * thread + 1] = f[1];
}

KERNEL(load_transpose) {
    using L = cub::BlockLoad<int, THREADS, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using W = cub::BlockStore<int, THREADS, 4, cub::BLOCK_STORE_TRANSPOSE>;
    __shared__ union {
        typename L::TempStorage l;
        typename W::TempStorage w;
    } room;
    int v[4];
    L(room.l).Load(in, v);
    __syncthreads();
    W(room.w).Store(out, v);
}

KERNEL(load_warp_transpose) {
    using L = cub::BlockLoad<int, THREADS, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using W = cub::BlockStore<int, THREADS, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    __shared__ union {
        typename L::TempStorage l;
        typename W::TempStorage w;
    } room;
    int v[4];
    L(room.l).Load(in, v);
    __syncthreads();
    W(room.w).Store(out, v);
}

KERNEL(shuffle) {
    using Algorithm = cub::BlockShuffle<int, THREADS>;
    __shared__ typename Algorithm::TempStorage room;
    int v = in[thread];
    int r = 0;
    Algorithm(room).Rotate(v, r, 3);
    out[thread] = r;
}

KERNEL(run_length) {
    using Algorithm = cub::BlockRunLengthDecode<int, THREADS, 1, 2>;
    __shared__ typename Algorithm::TempStorage room;
    int v[1] = {in[thread]};
    int n[1] = {(int)(thread & 1) + 1};
    int total = 0;
    Algorithm d(room, v, n, total);
    int o[2];
    d.RunLengthDecode(o, 0);
    out[2 * thread] = o[0];
    out[2 * thread + 1] = o[1];
}

KERNEL(warp_exchange) {
    using Algorithm = cub::WarpExchange<int, 4, 32, cub::WARP_EXCHANGE_SMEM>;
    __shared__ typename Algorithm::TempStorage room[2];
    int v[4] = {in[thread], in[THREADS + thread], in[2 * THREADS + thread],
                in[3 * THREADS + thread]};
    Algorithm(room[thread / 32]).StripedToBlocked(v, v);
    for (int i = 0; i < 4; i++)
        out[i * THREADS + thread] = v[i];
}

KERNEL(warp_merge_sort) {
    using Algorithm = cub::WarpMergeSort<int, 2, 32>;
    __shared__ typename Algorithm::TempStorage room[2];
    int v[2] = {in[2 * thread], in[2 * thread + 1]};
    Algorithm(room[thread / 32]).Sort(v, [] __device__(int a, int b) { return a < b; });
    out[2 * thread] = v[0];
    out[2 * thread + 1] = v[1];
}
