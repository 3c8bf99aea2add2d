"""A file that is mapped, page-locked where it is, and copied to the device without a copy between.

The mapping is read-only, so the buffer is, too: copies and kernels may read it, and nothing may
write it. Page-locking takes time, so it pays for a file that is read several times.
"""

import mmap
import tempfile
from pathlib import Path

import numpy as np

import cudadrv as cu

COUNT, CHUNK, BLOCK, PASSES = 1 << 18, 1 << 15, 256, 3

saxpy = cu.Module.from_file(Path(__file__).parent / "kernels" / "saxpy.ptx")["saxpy"]


def add_all(file: cu.LockedBuffer, total: cu.DeviceBuffer) -> None:
    """Add the chunks of the file to `total`. Two streams take turns: one copies, one adds."""
    copying, adding = cu.Stream(name="copying"), cu.Stream(name="adding")
    work = [cu.DeviceBuffer(CHUNK, "f4", name=f"work {k}") for k in range(2)]
    used: list[cu.Token | None] = [None, None]
    for number, part in enumerate(file.chunks(CHUNK)):
        chunk = work[number % 2]
        if (last := used[number % 2]) is not None:
            copying.wait(last)
        adding.wait(chunk.copy_from_async(part, copying))
        used[number % 2] = saxpy.launch(
            CHUNK // BLOCK, BLOCK, 1.0, cu.read(chunk), total, CHUNK, stream=adding
        )
    adding.synchronize()


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "numbers.f4")
    numbers = np.arange(COUNT, dtype="f4") % 64
    path.write_bytes(numbers.tobytes())
    with path.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    file = cu.LockedBuffer.from_memory(np.frombuffer(mapped, "f4"), name="file")
    total = cu.DeviceBuffer.zeros(CHUNK, "f4", name="total")
    for _ in range(PASSES):
        add_all(file, total)
    expected = PASSES * numbers.reshape(-1, CHUNK).sum(axis=0)
    assert np.array_equal(total.to_numpy(), expected)

    try:  # nothing may write the file
        file.fill(0)
    except BufferError as error:
        print(f"{error}\n")

    file.close()  # ends the page-locking, and lets go of the mapping
    mapped.close()

print(f"{COUNT} numbers of a file went to the device {PASSES} times, without a copy on the host")
