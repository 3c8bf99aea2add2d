"""Does a call cost more when many buffers are alive? It should not.

    python benchmarks/live_buffers.py [BUFFERS ...]

For each number of live buffers: nanoseconds of `copy_from_async` of 4 KiB, host to device, and of
`stream.record(event)`, the median of some rounds. All in one process, so that the lines can be
compared with each other. The absolute figures include the driver's own work, and on the software
driver they say nothing about a GPU.
"""

import statistics
import sys
import time
from collections.abc import Callable

import cudadrv as cu

ROUNDS = 25
CALLS = 200


def nanoseconds(call: Callable[[], object], settle: Callable[[], object]) -> float:
    rounds = []
    for _ in range(ROUNDS):
        settle()
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter_ns() - start) / CALLS)
    return statistics.median(rounds)


def main(numbers: list[int]) -> None:
    info = cu.driver_info()
    print(f"{info.name} {info.version[0]}.{info.version[1]}, {cu.Device(0).name}")
    stream, event = cu.Stream(), cu.Event()
    host = cu.LockedBuffer.zeros(4096)
    work = cu.DeviceBuffer(4096)
    whole = cu.DeviceBuffer(4096)
    alive = []
    print("live buffers  copy_from_async  record")
    for number in numbers:
        # Not parts of one buffer: each is memory with books of its own.
        while len(alive) < number:
            alive.append(cu.DeviceBuffer.from_address(whole.address, 4096, owner=whole))
        copy = nanoseconds(lambda: work.copy_from_async(host, stream), stream.synchronize)
        record = nanoseconds(lambda: stream.record(event), stream.synchronize)
        print(f"{number:12,}  {copy:12,.0f} ns  {record:6,.0f} ns", flush=True)
    stream.synchronize()


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1:]] or [1, 1_000, 100_000])
