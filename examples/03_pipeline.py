"""A pipeline: the host prepares and checks chunks while others are copied and computed."""

from pathlib import Path

import numpy as np

import cudadrv as cu

CHUNK, CHUNKS, BLOCK = 1 << 16, 20, 256
TOTAL = CHUNK * CHUNKS - 100  # the last chunk is not full

saxpy = cu.Module.from_file(Path(__file__).parent / "kernels" / "saxpy.ptx")["saxpy"]
checked = 0


def chunks():
    """Yield the source, one chunk at a time. A source can also be an array or a file."""
    for at in range(0, TOTAL, CHUNK):
        yield np.arange(at, min(at + CHUNK, TOTAL), dtype="f4")


def compute(stream: cu.Stream, x: cu.DeviceBuffer, y: cu.DeviceBuffer) -> None:
    """Queue the kernels of a chunk: y = 0 + 3 * x."""
    y.fill_async(0, stream)
    saxpy.launch(-(-x.count // BLOCK), BLOCK, 3.0, cu.read(x), y, x.count, stream=stream)


def check(index: int, result: np.ndarray) -> None:
    """Check a result. The array is a view of page-locked memory, and empty after this call."""
    global checked
    expected = np.arange(index * CHUNK, index * CHUNK + result.size, dtype="f4") * 3
    assert np.array_equal(result, expected)
    checked += result.size


with cu.Pipeline(CHUNK, "f4", compute=compute, output_dtype="f4", buffers=3) as pipeline:
    report = pipeline.run(chunks(), consume=check)
    assert (report.chunks, report.items, checked) == (CHUNKS, TOTAL, TOTAL)

    # An exception in the middle leaves everything usable.
    try:
        pipeline.run(chunks(), progress=lambda items: 1 / (items - 5 * CHUNK))
    except ZeroDivisionError as error:
        print(f"stopped after 5 chunks: {error}")
    assert pipeline.run(chunks()).items == TOTAL

print(f"{report.items} numbers in {report.chunks} chunks went through the device and came back")
