"""Small kernels with a mistake each, in a wrong and in a right form, and the host that runs them.

    python benchmarks/mistakes.py NAME right|wrong FILE.ptx

This calls the driver through ctypes (libcuda.so.1) and needs nothing else, so it can run under
compute-sanitizer, and under `python -m cudadrv run`. It prints "ran" when all work is done. Each
kernel gets the addresses of two buffers of WORDS words. compute_sanitizer.py compiles the kernels
and compares what the tools find.
"""

import ctypes
import sys
from pathlib import Path
from typing import NamedTuple

WORDS = 1024


class Mistake(NamedTuple):
    kind: str  # "race", "uninitialized", "barrier", "access"
    source: str  # GOOD(...) is only in the right form, BAD(...) only in the wrong one
    blocks: int = 1
    threads: int = 64
    # The buffers that nobody writes before the launch, in both forms or only in the wrong one.
    fresh: str = ""
    fresh_if_wrong: str = ""
    read: int = WORDS  # words of `out` that the host reads
    read_if_wrong: int = 0
    programmatic: bool = False  # a second kernel follows in a programmatic dependent launch
    only_right: bool = False  # nothing is wrong with it, although it looks so


PRELUDE = r"""
#ifdef WRONG
#define GOOD(...)
#define BAD(...) __VA_ARGS__
#else
#define GOOD(...) __VA_ARGS__
#define BAD(...)
#endif
#define KERNEL extern "C" __global__ void NAME(unsigned *out, unsigned *in)
#define SECOND extern "C" __global__ void SECOND_NAME(unsigned *out, unsigned *in)
#define t threadIdx.x
#define b blockIdx.x
typedef unsigned long long word;
__device__ unsigned address(void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(word *bar, unsigned count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(address(bar)), "r"(count) : "memory");
}
__device__ void arrive(word *bar) {
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }"
                 :: "r"(address(bar)) : "memory");
}
__device__ void wait(word *bar) { // gives up after a while, so that wrong kernels end
    for (int i = 0, done = 0; i < 10000 && !done; i++)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;"
                     "  selp.s32 %0, 1, 0, p; }" : "=r"(done) : "r"(address(bar)) : "memory");
}
__device__ void copy_async(unsigned *shared, unsigned *global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :: "r"(address(shared)), "l"(global) : "memory");
}
"""

MISTAKES = {
    # ---- races in shared memory ----
    "no __syncthreads() between a write and a read": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned tile[64];
            tile[t] = t;
            GOOD(__syncthreads();)
            out[t] = tile[63 - t];
        }""",
    ),
    "no __syncthreads() in the loop of a reduction": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned part[256];
            part[t] = in[t];
            __syncthreads();
            for (unsigned half = 128; half; half >>= 1) {
                if (t < half)
                    part[t] += part[t + half];
                GOOD(__syncthreads();)
            }
            if (!t)
                out[0] = part[0];
        }""",
        threads=256,
    ),
    "no __syncwarp()": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned tile[32];
            tile[t] = t;
            GOOD(__syncwarp();)
            out[t] = tile[t ^ 1];
        }""",
        threads=32,
    ),
    "__syncwarp() for half of the warp": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned tile[32];
            tile[t] = t;
            __syncwarp(GOOD(0xffffffff) BAD(t < 16 ? 0x0000ffff : 0xffff0000));
            out[t] = tile[31 - t];
        }""",
        threads=32,
    ),
    "a shuffle in place of __syncwarp()": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned tile[32];
            tile[t] = t;
            unsigned v = __shfl_xor_sync(0xffffffff, t, 1);
            GOOD(__syncwarp();)
            out[t] = tile[v];
        }""",
        threads=32,
    ),
    "bar.arrive before the write": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned tile[32];
            if (t < 32) {
                BAD(asm volatile("bar.arrive 1, 64;" ::: "memory");)
                tile[t] = t;
                GOOD(asm volatile("bar.arrive 1, 64;" ::: "memory");)
            } else {
                asm volatile("bar.sync 1, 64;" ::: "memory");
                out[t] = tile[63 - t];
            }
        }""",
    ),
    "an atomic, and a read without a barrier": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned sum;
            if (!t) sum = 0;
            __syncthreads();
            atomicAdd(&sum, t);
            GOOD(__syncthreads();)
            out[t] = sum;
        }""",
    ),
    "a lock in shared memory without fences": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned lock, count;
            if (!t) lock = count = 0;
            __syncthreads();
            if (t % 32 == 0) {
                while (atomicCAS(&lock, 0, 1)) ;
                GOOD(__threadfence_block();)
                count += 1;
                GOOD(__threadfence_block();)
                atomicExch(&lock, 0);
            }
            __syncthreads();
            out[t] = count;
        }""",
    ),
    # ---- races in global memory ----
    "global memory without __syncthreads()": Mistake(
        "race",
        """KERNEL {
            out[t] = t;
            GOOD(__syncthreads();)
            out[64 + t] = out[63 - t];
        }""",
    ),
    "four words written, one of them a neighbour's": Mistake(
        "race",
        """KERNEL {
            ((uint4 *)out)[t] = make_uint4(t, t, t, t);
            out[512 + t] = *(volatile unsigned *)&out[4 * t + GOOD(3) BAD(4)];
        }""",
    ),
    "two blocks write one word": Mistake(
        "race",
        """KERNEL {
            GOOD(if (!t) atomicMax(out, b);)
            BAD(if (!t) out[0] = b;)
        }""",
        blocks=8,
    ),
    "a block reads its neighbour's results": Mistake(
        "race",
        """KERNEL {
            unsigned i = b * 64 + t;
            out[i] = i;
            __syncthreads();
            out[512 + i] = GOOD(out[i ^ 1]) BAD(out[i ^ 64]);
        }""",
        blocks=8,
    ),
    "an atomic, and a read by another block": Mistake(
        "race",
        """KERNEL {
            if (!t)
                atomicAdd(out, 1);
            if (!t && b == 1)
                out[1] = GOOD(atomicAdd(out, 0)) BAD(out[0]);
        }""",
        blocks=8,
    ),
    "atomicAdd_block() by several blocks": Mistake(
        "race",
        "KERNEL { GOOD(atomicAdd(out, 1);) BAD(atomicAdd_block(out, 1);) }",
        blocks=8,
    ),
    "a flag without __threadfence()": Mistake(
        "race",
        """KERNEL {
            if (t)
                return;
            if (b == 0) {
                out[1] = 7;
                GOOD(__threadfence();)
                *(volatile unsigned *)out = 1;
            } else {
                while (!*(volatile unsigned *)out) ;
                GOOD(__threadfence();)
                out[2] = out[1];
            }
        }""",
        blocks=2,
    ),
    "a flag with __threadfence_block()": Mistake(
        "race",
        """KERNEL {
            if (t)
                return;
            if (b == 0) {
                out[1] = 7;
                GOOD(__threadfence();) BAD(__threadfence_block();)
                *(volatile unsigned *)out = 1;
            } else {
                while (!*(volatile unsigned *)out) ;
                GOOD(__threadfence();) BAD(__threadfence_block();)
                out[2] = out[1];
            }
        }""",
        blocks=2,
    ),
    "a relaxed store and load in place of release and acquire": Mistake(
        "race",
        """KERNEL {
            unsigned seen = 0;
            if (t)
                return;
            if (b == 0) {
                out[1] = 7;
                asm volatile("st." GOOD("release") BAD("relaxed") ".gpu.u32 [%0], 1;"
                             :: "l"(out) : "memory");
            } else {
                while (!seen)
                    asm volatile("ld." GOOD("acquire") BAD("relaxed") ".gpu.u32 %0, [%1];"
                                 : "=r"(seen) : "l"(out) : "memory");
                out[2] = out[1];
            }
        }""",
        blocks=2,
    ),
    "a ticket without __threadfence()": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned last;
            out[64 + b * 32 + t] = t;
            __syncthreads();
            if (!t) {
                GOOD(__threadfence();)
                last = atomicAdd(out, 1) == gridDim.x - 1;
                GOOD(__threadfence();)
            }
            __syncthreads();
            if (last) {
                unsigned sum = 0;
                for (unsigned i = 0; i < gridDim.x; i++)
                    sum += out[64 + i * 32 + t];
                out[1 + t] = sum;
            }
        }""",
        blocks=16,
        threads=32,
    ),
    "no griddepcontrol.wait in a dependent launch": Mistake(
        "race",
        """KERNEL {
            asm volatile("griddepcontrol.launch_dependents;");
            out[b * 64 + t] = t;
        }
        SECOND {
            GOOD(asm volatile("griddepcontrol.wait;" ::: "memory");)
            in[b * 64 + t] = out[b * 64 + (63 - t)];
        }""",
        blocks=4,
        programmatic=True,
    ),
    # ---- asynchronous copies and mbarriers ----
    "no cp.async.wait_all": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned tile[64];
            copy_async(&tile[t], &in[t]);
            GOOD(asm volatile("cp.async.wait_all;" ::: "memory");)
            __syncthreads();
            out[t] = tile[63 - t];
        }""",
    ),
    "no __syncthreads() behind cp.async.wait_all": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned tile[64];
            copy_async(&tile[t], &in[t]);
            asm volatile("cp.async.wait_all;" ::: "memory");
            GOOD(__syncthreads();)
            out[t] = tile[63 - t];
        }""",
    ),
    "no fence.proxy.async before a bulk copy": Mistake(
        "race",
        """KERNEL {
            __shared__ __align__(128) unsigned tile[64];
            tile[t] = t;
            GOOD(asm volatile("fence.proxy.async.shared::cta;" ::: "memory");)
            __syncthreads();
            if (!t) {
                asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;"
                             :: "l"(out), "r"(address(tile)) : "memory");
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            }
        }""",
    ),
    "no wait for a bulk copy": Mistake(
        "race",
        """KERNEL {
            __shared__ __align__(128) unsigned tile[64];
            __shared__ word bar;
            if (!t)
                init(&bar, 1);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncthreads();
            if (!t) {
                asm volatile("{ .reg .b64 s;"
                             "mbarrier.arrive.expect_tx.shared.b64 s, [%0], 256; }"
                             :: "r"(address(&bar)) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                             " [%0], [%1], 256, [%2];"
                             :: "r"(address(tile)), "l"(in), "r"(address(&bar)) : "memory");
            }
            GOOD(wait(&bar);)
            out[t] = tile[t];
            __syncthreads();
            wait(&bar);
        }""",
    ),
    "no wait for an mbarrier": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned tile[32];
            __shared__ word bar;
            if (!t)
                init(&bar, 32);
            __syncthreads();
            if (t < 32) {
                tile[t] = t;
                arrive(&bar);
            } else {
                GOOD(wait(&bar);)
                out[t] = tile[63 - t];
            }
        }""",
    ),
    "an mbarrier without mbarrier.init": Mistake(
        "barrier",
        """KERNEL {
            __shared__ word bar;
            GOOD(if (!t) init(&bar, 64);)
            __syncthreads();
            arrive(&bar);
            wait(&bar);
            out[t] = t;
        }""",
    ),
    "an arrival behind mbarrier.inval": Mistake(
        "barrier",
        """KERNEL {
            __shared__ word bar;
            if (!t) init(&bar, 64);
            __syncthreads();
            arrive(&bar);
            wait(&bar);
            __syncthreads();
            if (!t)
                asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(address(&bar)) : "memory");
            __syncthreads();
            BAD(arrive(&bar);)
            out[t] = t;
        }""",
    ),
    # ---- values that nobody has written ----
    "a branch on global memory that nobody wrote": Mistake(
        "uninitialized",
        """KERNEL {
            if (in[t] > 5)
                out[t] = 1;
        }""",
        fresh_if_wrong="in",
    ),
    "a histogram that nobody zeroed": Mistake(
        "uninitialized",
        "KERNEL { atomicAdd(&out[in[t] & 7], 1); }",
        fresh_if_wrong="out",
        read=8,
    ),
    "the host reads more than the kernel wrote": Mistake(
        "uninitialized",
        "KERNEL { out[t] = in[t]; }",
        fresh="out",
        read=64,
        read_if_wrong=128,
    ),
    "shared memory that nobody wrote": Mistake(
        "uninitialized",
        """KERNEL {
            __shared__ unsigned tile[65];
            tile[t] = t;
            GOOD(if (!t) tile[64] = 0;)
            __syncthreads();
            out[t] = tile[t + 1];
        }""",
    ),
    "local memory that nobody wrote": Mistake(
        "uninitialized",
        """KERNEL {
            volatile unsigned own[16];
            for (unsigned i = 0; i < in[4]; i++)
                own[i] = i;
            out[t] = own[in[GOOD(3) BAD(5)]];
        }""",
    ),
    "one half of each pair is written": Mistake(
        "uninitialized",
        """KERNEL {
            in[2 * t] = t;
            __syncthreads();
            ((uint2 *)out)[t] = ((uint2 *)in)[t];
        }""",
        fresh="in out",
        read=1,
        read_if_wrong=4,
    ),
    "a value that is loaded and not used": Mistake(
        "uninitialized",
        """KERNEL {
            unsigned v = *(volatile unsigned *)&in[t];
            out[t] = out[t] ? v : 1;
        }""",
        fresh="in",
        only_right=True,
    ),
    # ---- barriers and warps ----
    "__syncthreads() for half of a warp": Mistake(
        "barrier",
        """KERNEL {
            BAD(if (t % 32 < 16)) __syncthreads();
            out[t] = t;
        }""",
    ),
    "__syncthreads() for half of a block": Mistake(
        "barrier",
        """KERNEL {
            BAD(if (t < 32)) __syncthreads();
            out[t] = t;
        }""",
    ),
    "a shuffle whose mask names lanes that do not call it": Mistake(
        "barrier",
        """KERNEL {
            unsigned v = t;
            if (t < 16)
                v += __shfl_xor_sync(GOOD(0x0000ffff) BAD(0xffffffff), v, 8);
            out[t] = v;
        }""",
        threads=32,
    ),
    "a shuffle that reads lanes that have ended": Mistake(
        "barrier",
        """KERNEL {
            if (t >= 24)
                return;
            out[t] = __shfl_xor_sync(0xffffffff, t, GOOD(4) BAD(8));
        }""",
        threads=32,
    ),
    "__syncwarp() by a lane that its mask does not name": Mistake(
        "barrier",
        """KERNEL {
            __syncwarp(GOOD(0xffffffff) BAD(0x0000ffff));
            out[t] = t;
        }""",
        threads=32,
    ),
    # ---- accesses out of bounds ----
    "global memory out of bounds": Mistake(
        "access",
        f"KERNEL {{ in[t == 63 ? BAD({WORDS}) GOOD(63) : t] = t; }}",
    ),
    "shared memory out of bounds": Mistake(
        "access",
        """KERNEL {
            __shared__ unsigned tile[64];
            volatile unsigned *p = tile;
            p[t + in[GOOD(0) BAD(1)]] = t;
            __syncthreads();
            out[t] = p[t];
        }""",
    ),
    # ---- nothing is wrong ----
    "all threads store the same value": Mistake(
        "race",
        """KERNEL {
            __shared__ unsigned found;
            if (!t) found = 0;
            __syncthreads();
            if (t % 3 == 0)
                found = 1;
            __syncthreads();
            out[t] = found;
        }""",
        only_right=True,
    ),
}


def kernels(name: str) -> tuple[str, str]:
    """The names of the kernel, and of the one that follows it if the launch is programmatic."""
    number = list(MISTAKES).index(name)
    return f"mistake{number}", f"second{number}"


def source(names) -> str:
    """Return the CUDA C of some kernels. With -DWRONG it has the wrong forms."""
    text = PRELUDE
    for name in names:
        kernel, second = kernels(name)
        text += f"#undef NAME\n#define NAME {kernel}\n#undef SECOND_NAME\n"
        text += f"#define SECOND_NAME {second}\n"
        text += MISTAKES[name].source + "\n"
    return text


class Attribute(ctypes.Structure):
    """A CUlaunchAttribute; number 6 is PROGRAMMATIC_STREAM_SERIALIZATION."""

    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class Config(ctypes.Structure):
    """A CUlaunchConfig."""

    _fields_ = [
        ("shape", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


class Driver:
    """Calls functions of the driver, and ends the process at the first error."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)

    def __getattr__(self, name: str):
        def call(*args):
            status = getattr(self.library, name)(*args)
            if status:
                raise SystemExit(f"{name} returned {status}")

        return call


def run(name: str, wrong: bool, ptx: bytes, library: str = "libcuda.so.1") -> None:
    """Run a kernel of the PTX."""
    mistake, driver = MISTAKES[name], Driver(library)
    device, context, module, stream = (ctypes.c_int(), *(ctypes.c_void_p() for _ in range(3)))
    driver.cuInit(0)
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    driver.cuCtxSetCurrent(context)
    driver.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(ptx))
    driver.cuStreamCreate(ctypes.byref(stream), 0)
    fresh = f"{mistake.fresh} {mistake.fresh_if_wrong if wrong else ''}".split()
    buffers = {}
    for each in ("out", "in"):
        buffer = buffers[each] = ctypes.c_uint64()
        driver.cuMemAlloc_v2(ctypes.byref(buffer), ctypes.c_size_t(4 * WORDS))
        if each not in fresh:
            numbers = (ctypes.c_uint * WORDS)(*(range(WORDS) if each == "in" else ()))
            driver.cuMemcpyHtoD_v2(buffer, numbers, ctypes.c_size_t(4 * WORDS))
    arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in buffers.values()))
    attribute = Attribute(6, 0, (1,))
    for number, kernel in enumerate(kernels(name)[: 1 + mistake.programmatic]):
        function = ctypes.c_void_p()
        driver.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode())
        shape = (mistake.blocks, 1, 1, mistake.threads, 1, 1, 0)
        config = Config(shape, stream, ctypes.addressof(attribute), number)
        driver.cuLaunchKernelEx(ctypes.byref(config), function, arguments, None)
    driver.cuStreamSynchronize(stream)
    words = (wrong and mistake.read_if_wrong) or mistake.read
    read = (ctypes.c_uint * words)()
    driver.cuMemcpyDtoH_v2(read, buffers["out"], ctypes.c_size_t(4 * words))
    for buffer in buffers.values():
        driver.cuMemFree_v2(buffer)
    driver.cuStreamDestroy_v2(stream)
    driver.cuModuleUnload(module)


if __name__ == "__main__":
    _, name, form, path = sys.argv
    run(name, form == "wrong", Path(path).read_bytes())
    print("ran")
