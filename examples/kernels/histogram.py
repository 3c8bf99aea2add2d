"""How often each value of a byte occurs, in chunks on two streams."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

BLOCK = 256
BYTES_PER_THREAD = 64


def histogram(data: npt.NDArray[np.uint8], chunk: int = 1 << 20) -> npt.NDArray[np.uint64]:
    kernel = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))["histogram"]
    # Each stream has separate counters. Two kernels that add to the same counters would conflict:
    # cudadrv treats atomic additions like any other writes.
    lanes = [(cu.Stream(), cu.DeviceBuffer.zeros(256, "u8", name="bins")) for _ in range(2)]
    source = cu.LockedBuffer.from_array(data, name="data")
    work = [cu.DeviceBuffer(chunk, name="work") for _ in lanes]
    for number, part in enumerate(source.chunks(chunk)):
        stream, bins = lanes[number % 2]
        # While one chunk is counted, the next one is on its way on the other stream.
        arrived = work[number % 2][: part.count]
        arrived.copy_from_async(part, stream)
        blocks = -(-part.count // (BLOCK * BYTES_PER_THREAD))
        kernel.launch(blocks, BLOCK, cu.read(arrived), part.count, bins, stream=stream)
    counted = np.zeros(256, "u8")
    total = np.zeros(256, "u8")
    for stream, bins in lanes:
        bins.copy_to(counted, stream=stream)
        total += counted
    return total


if __name__ == "__main__":
    text = np.frombuffer(Path(__file__).read_bytes(), "u1")
    print({chr(value): int(histogram(text)[value]) for value in text[3:20]})
