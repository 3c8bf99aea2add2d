"""What the race detector of the software driver costs.

    python benchmarks/races.py [BYTES ...]

For each size: microseconds of a copy from page-locked memory to the device with a synchronization,
by ctypes, without and with the race detector; medians of alternating rounds in one process.
"""

import ctypes
import statistics
import sys
import time

from cudadrv._library import software_path

ROUNDS = 15
CALLS = 2000


def prepare(cuda: ctypes.CDLL, nbytes: int) -> list[object]:
    """Return arguments of a copy: target, source, size, stream."""
    target, source, stream = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
    size = ctypes.c_size_t(nbytes)
    assert cuda.cuMemAlloc_v2(ctypes.byref(target), size) == 0
    assert cuda.cuMemHostAlloc(ctypes.byref(source), size, 0) == 0
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return [target, source, size, stream]


def microseconds(cuda: ctypes.CDLL, arguments: list[object], races: str) -> float:
    assert cuda.cudadrvSoftConfigure(f"schedule=lazy,races={races}".encode()) == 0
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        cuda.cuMemcpyHtoDAsync_v2(*arguments)
        cuda.cuStreamSynchronize(arguments[3])
    return (time.perf_counter_ns() - start) / CALLS / 1000


def main(sizes: list[int]) -> None:
    cuda = ctypes.CDLL(software_path())
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    print(f"{'bytes':>8} {'off':>8} {'record':>8}  us")
    for nbytes in sizes:
        arguments = prepare(cuda, nbytes)
        rounds = [
            [microseconds(cuda, arguments, races) for races in ("off", "record")]
            for _ in range(ROUNDS)
        ]
        off, record = map(statistics.median, zip(*rounds, strict=True))
        print(f"{nbytes:8} {off:8.2f} {record:8.2f}")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [64, 4096, 65536])
