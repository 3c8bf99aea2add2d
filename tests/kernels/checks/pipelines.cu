// Kernels that sum up batches, which they copy to shared memory. Without WAIT, they do not wait for
// the copies.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

// cuda::pipeline of the whole block, with shared state
extern "C" __global__ void block_pipeline(int *out, const int *in) {
    constexpr int stages = 2;
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    __shared__ int tile[stages][128];
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int sum = 0;
    int fetch = 0;
    for (int batch = 0; batch < 6; batch++) {
        for (; fetch < 6 && fetch < batch + stages; fetch++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile[fetch % stages], in + fetch * 128, sizeof(int) * 128, pipe);
            pipe.producer_commit();
        }
        if (WAIT) pipe.consumer_wait();
        sum += tile[batch % stages][127 - threadIdx.x];
        if (WAIT) pipe.consumer_release();
    }
    out[threadIdx.x] = sum;
}
// cuda::pipeline of each thread
extern "C" __global__ void thread_pipeline(int *out, const int *in) {
    __shared__ int tile[2][128];
    auto pipe = cuda::make_pipeline();
    int sum = 0, fetch = 0;
    for (int batch = 0; batch < 6; batch++) {
        for (; fetch < 6 && fetch < batch + 2; fetch++) {
            pipe.producer_acquire();
            cuda::memcpy_async(&tile[fetch % 2][threadIdx.x], in + fetch * 128 + threadIdx.x, sizeof(int), pipe);
            pipe.producer_commit();
        }
        if (WAIT) pipe.consumer_wait();
        sum += tile[batch % 2][threadIdx.x];
        pipe.consumer_release();
    }
    out[threadIdx.x] = sum;
}
// producer and consumer warps
extern "C" __global__ void warp_roles(int *out, const int *in) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    __shared__ int tile[2][64];
    auto block = cg::this_thread_block();
    auto role = threadIdx.x < 64 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(block, &state, role);
    int sum = 0;
    for (int batch = 0; batch < 6; batch++) {
        if (role == cuda::pipeline_role::producer) {
            pipe.producer_acquire();
            cuda::memcpy_async(&tile[batch % 2][threadIdx.x], in + batch * 64 + threadIdx.x, sizeof(int), pipe);
            pipe.producer_commit();
        } else {
            if (WAIT) pipe.consumer_wait();
            sum += tile[batch % 2][127 - threadIdx.x];
            pipe.consumer_release();
        }
    }
    if (threadIdx.x >= 64) out[threadIdx.x] = sum;
}
// cg::memcpy_async
extern "C" __global__ void group_copy(int *out, const int *in) {
    __shared__ int tile[128];
    auto block = cg::this_thread_block();
    int sum = 0;
    for (int batch = 0; batch < 6; batch++) {
        cg::memcpy_async(block, tile, in + batch * 128, sizeof(int) * 128);
        if (WAIT) cg::wait(block);
        sum += tile[127 - threadIdx.x];
        block.sync();
    }
    out[threadIdx.x] = sum;
    if (!WAIT) cg::wait(block);
}
// primitives
extern "C" __global__ void primitives(int *out, const int *in) {
    __shared__ int tile[3][128];
    int sum = 0;
    for (int i = 0; i < 2; i++) {
        __pipeline_memcpy_async(&tile[i][threadIdx.x], in + i * 128 + threadIdx.x, 4);
        __pipeline_commit();
    }
    for (int batch = 0; batch < 6; batch++) {
        if (batch + 2 < 6)
            __pipeline_memcpy_async(&tile[(batch + 2) % 3][threadIdx.x], in + (batch + 2) * 128 + threadIdx.x, 4);
        __pipeline_commit();
        if (WAIT) __pipeline_wait_prior(2);
        __syncthreads();
        sum += tile[batch % 3][127 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
    __pipeline_wait_prior(0);
}
// cuda::barrier
extern "C" __global__ void barrier_copy(int *out, const int *in) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ alignas(16) int tile[128];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    int sum = 0;
    for (int batch = 0; batch < 6; batch++) {
        cuda::memcpy_async(&tile[threadIdx.x], in + batch * 128 + threadIdx.x, sizeof(int), bar);
        auto token = bar.arrive();
        if (WAIT) bar.wait(std::move(token));
        sum += tile[127 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
// TMA of one row, as in the programming guide
extern "C" __global__ void bulk_copy(int *out, const int *in) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ alignas(128) int tile[128];
    if (threadIdx.x == 0) { init(&bar, blockDim.x); ptx::fence_proxy_async(ptx::space_shared); }
    __syncthreads();
    for (int batch = 0; batch < 3; batch++) {
        if (threadIdx.x == 0)
            cuda::memcpy_async(tile, in + batch * 128, cuda::aligned_size_t<16>(sizeof(tile)), bar);
        auto token = bar.arrive();
        if (WAIT) bar.wait(std::move(token));
        tile[threadIdx.x] += 1;
        if (WAIT) ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (threadIdx.x == 0) {
            ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + batch * 128, tile, sizeof(tile));
            ptx::cp_async_bulk_commit_group();
            ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        }
        __syncthreads();
    }
}
