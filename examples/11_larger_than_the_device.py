"""A data set that is larger than the device's memory goes through the device in chunks."""

import os

# The software driver gets a small device; a GPU keeps its memory, into which the data set fits.
os.environ["CUDADRV_SOFTWARE"] = os.environ.get("CUDADRV_SOFTWARE", "") + ",memory=4MiB"

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import cudadrv as cu

COUNT, CHUNK, BLOCK, PIECE = 8 << 20, 1 << 18, 256, 16384

histogram = cu.Module.from_file(Path(__file__).parent / "kernels" / "histogram.ptx")["histogram"]
bins = cu.DeviceBuffer.zeros(256, "u8", name="bins")
expected = np.zeros(256, "u8")


def records() -> Iterator[np.ndarray]:
    """Yield the data set, a chunk at a time. It is never in memory as a whole."""
    random = np.random.default_rng(0)
    for _ in range(0, COUNT, CHUNK):
        chunk = random.integers(0, 256, CHUNK, dtype="u1")
        expected[:] += np.bincount(chunk, minlength=256).astype("u8")
        yield chunk


def count(stream: cu.Stream, chunk: cu.DeviceBuffer, _: cu.DeviceBuffer) -> None:
    """Queue the kernel of a chunk. All kernels are on one stream, so they may share `bins`."""
    histogram.launch(
        -(-chunk.count // PIECE), BLOCK, cu.read(chunk), chunk.count, bins, stream=stream
    )


free, total = cu.Device(0).memory_info()
if total < COUNT:
    try:
        cu.DeviceBuffer(COUNT, name="everything")
    except cu.CudaError as error:
        print(f"{error}\n")

with cu.Pipeline(CHUNK, compute=count) as pipeline:
    report = pipeline.run(records())

assert np.array_equal(bins.to_numpy(), expected)
print(f"{report.items >> 20} MiB in {report.chunks} chunks, a device of {total >> 20} MiB")
