// A product of matrices by a kernel of CUTLASS for sm_90a, launched by the driver API:
// d = 2 a b + 3 c. With -DKERNEL this file is compiled to PTX, which has the kernel alone, and
// without it to the program:
//     program FILE.ptx M N K
// ELEMENT, SCHEDULE, EPILOGUE, TILE_M, TILE_N and TILE_K choose the kernel.

#include "cute/tensor.hpp"
#include "cutlass/device_kernel.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <vector>

using Element = ELEMENT;
using ColumnMajor = cutlass::layout::ColumnMajor;
using TileShape = cute::Shape<cute::Int<TILE_M>, cute::Int<TILE_N>, cute::Int<TILE_K>>;
using ClusterShape = cute::Shape<cute::_1, cute::_1, cute::_1>;
constexpr int alignment = 128 / cutlass::sizeof_bits<Element>::value, alignment_of_floats = 4;

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, float, ColumnMajor,
    alignment_of_floats, float, ColumnMajor, alignment_of_floats,
    cutlass::epilogue::EPILOGUE>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor,
    alignment, Element, ColumnMajor, alignment, float, TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(Epilogue::SharedStorage))>,
    cutlass::gemm::SCHEDULE>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, //
                                                    Epilogue>;

#ifdef KERNEL
template __global__ void cutlass::device_kernel<Kernel>(CUTLASS_GRID_CONSTANT Kernel::Params const);
#else

void check(CUresult status, const char *what) {
    const char *name = nullptr;
    if (status && cuGetErrorName(status, &name) == CUDA_SUCCESS)
        std::exit((std::printf("%s: %s\n", what, name), 1));
}
#define CHECK(call) check(call, #call)

// A matrix of small whole numbers, whose products are exact. On the device, a copy of it.
template <class T> struct Matrix {
    std::vector<T> items;
    CUdeviceptr device = 0;

    explicit Matrix(size_t count) : items(count) {
        for (T &item : items)
            item = T(float(std::rand() % 9 - 4));
        CHECK(cuMemAlloc(&device, bytes()));
        CHECK(cuMemcpyHtoD(device, items.data(), bytes()));
    }
    T *pointer() { return reinterpret_cast<T *>(device); }
    size_t bytes() const { return items.size() * sizeof(T); }
};

struct Problem {
    int m, n, k;
    Matrix<Element> a{size_t(m) * k}, b{size_t(n) * k};
    Matrix<float> c{size_t(m) * n}, d{size_t(m) * n};

    Kernel::Arguments arguments() {
        auto stride_a = cutlass::make_cute_packed_stride(Kernel::StrideA{}, {m, k, 1});
        auto stride_b = cutlass::make_cute_packed_stride(Kernel::StrideB{}, {n, k, 1});
        auto stride_c = cutlass::make_cute_packed_stride(Kernel::StrideC{}, {m, n, 1});
        auto stride_d = cutlass::make_cute_packed_stride(Kernel::StrideD{}, {m, n, 1});
        cutlass::KernelHardwareInfo device;
        device.sm_count = device.max_active_clusters = 4;
        return {cutlass::gemm::GemmUniversalMode::kGemm,
                {m, n, k, 1},
                {a.pointer(), stride_a, b.pointer(), stride_b},
                {{2.0f, 3.0f}, c.pointer(), stride_c, d.pointer(), stride_d},
                device};
    }

    float expected(int row, int column) const {
        float sum = 0;
        for (int i = 0; i < k; i++)
            sum += float(a.items[size_t(row) * k + i]) * float(b.items[size_t(column) * k + i]);
        return 2 * sum + 3 * c.items[size_t(column) * m + row];
    }

    size_t count_wrong() {
        size_t wrong = 0;
        CHECK(cuMemcpyDtoH(d.items.data(), d.device, d.bytes()));
        for (int column = 0; column < n; column++)
            for (int row = 0; row < m; row++)
                wrong += d.items[size_t(column) * m + row] != expected(row, column);
        return wrong;
    }
};

void launch(CUfunction function, const Kernel::Arguments &arguments) {
    if (!Kernel::can_implement(arguments))
        std::exit((std::puts("CUTLASS cannot compute this"), 1));
    CUdeviceptr workspace = 0;
    CHECK(cuMemAlloc(&workspace, Kernel::get_workspace_size(arguments) + 1));
    auto params = Kernel::to_underlying_arguments(arguments, reinterpret_cast<void *>(workspace));
    dim3 grid = Kernel::get_grid_shape(params), block = Kernel::get_block_shape();
    int shared = Kernel::SharedStorageSize;
    CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared));
    void *given[] = {&params};
    CHECK(cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
                         nullptr, given, nullptr));
    CHECK(cuCtxSynchronize());
}

int main(int count, char **words) {
    if (count != 5)
        return std::puts("usage: program FILE.ptx M N K"), 2;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoad(&module, words[1]));
    CHECK(cuModuleEnumerateFunctions(&function, 1, module));
    Problem problem{std::atoi(words[2]), std::atoi(words[3]), std::atoi(words[4])};
    launch(function, problem.arguments());
    size_t wrong = problem.count_wrong();
    std::printf("%zu of %zu items are wrong\n", wrong, problem.d.items.size());
    return wrong != 0;
}
#endif
