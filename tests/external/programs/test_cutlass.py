"""Builds products of matrices with CUTLASS, as sm_90a has them, and compares them with the host's.

$SUITE_SOURCE is a checkout of CUTLASS. nvcc compiles gemm.cu twice: to PTX, and to a program that
launches the PTX by the driver API.
"""

import os
import subprocess
from pathlib import Path

import pytest
from running import run

SOURCE = Path(os.environ["SUITE_SOURCE"])
GEMM = Path(__file__).with_name("gemm.cu")
FLAGS = (
    *("-std=c++17", "-arch=sm_90a", "-w", "--expt-relaxed-constexpr", "-DNDEBUG"),
    *("-DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL", f"-I{SOURCE}/include"),
    f"-I{SOURCE}/tools/util/include",
)
WARPS = "KernelTmaWarpSpecialized", "TmaWarpSpecialized"
ASYNC = "KernelCpAsyncWarpSpecialized", "NoSmemWarpSpecialized"
COOPERATIVE = "KernelTmaWarpSpecializedCooperative", "TmaWarpSpecializedCooperative"
PINGPONG = "KernelTmaWarpSpecializedPingpong", "TmaWarpSpecialized"
# For each kernel: the type, the schedules of the main loop and of the end, the tile, and the size
# of the problem, which is no multiple of the tile.
KERNELS = {
    "f16": ("half_t", *WARPS, (64, 64, 64), (136, 72, 200)),
    "f16-tma": ("half_t", "KernelTma", "NoSmemWarpSpecialized", (64, 64, 64), (136, 72, 200)),
    "f16-cp.async": ("half_t", *ASYNC, (64, 64, 64), (136, 72, 200)),
    "f16-pingpong": ("half_t", *PINGPONG, (64, 128, 64), (328, 264, 136)),
    "f16-cooperative": ("half_t", *COOPERATIVE, (128, 128, 64), (264, 136, 200)),
    "bf16-cooperative": ("bfloat16_t", *COOPERATIVE, (128, 128, 64), (264, 136, 200)),
    "tf32": ("tfloat32_t", *WARPS, (64, 64, 32), (136, 72, 68)),
    "e4m3-pingpong": ("float_e4m3_t", *PINGPONG, (64, 128, 128), (136, 264, 272)),
    "e5m2-cooperative": ("float_e5m2_t", *COOPERATIVE, (128, 64, 128), (136, 72, 272)),
}


def compile_gemm(defines, *arguments):
    command = ["nvcc", *FLAGS, *defines, GEMM, *arguments]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("kernel", KERNELS)
def test_product(kernel, tmp_path):
    element, schedule, epilogue, tile, sizes = KERNELS[kernel]
    defines = [f"-DELEMENT=cutlass::{element}", f"-DSCHEDULE={schedule}", f"-DEPILOGUE={epilogue}"]
    defines += [f"-DTILE_{name}={size}" for name, size in zip("MNK", tile, strict=True)]
    libraries = [f"-L{folder}" for folder in os.environ["LD_LIBRARY_PATH"].split(":") if folder]
    compile_gemm(defines, "-DKERNEL", "-ptx", "-o", tmp_path / "gemm.ptx")
    compile_gemm(defines, "-o", tmp_path / "gemm", *libraries, "-lcuda")
    run(tmp_path / "gemm", tmp_path / "gemm.ptx", *map(str, sizes))
