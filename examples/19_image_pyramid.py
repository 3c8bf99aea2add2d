"""Halves a picture several times on two devices, which send each other columns at their border."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Pixels = npt.NDArray[np.uint8]
ROWS, COLUMNS, LEVELS, HALO, BLOCK = 240, 320, 4, 2, (32, 8)
KERNEL, WEIGHTS = Path(__file__).parent / "kernels" / "pyramid.ptx", (1, 4, 6, 4, 1)


class Half:
    """Half of a picture and its smaller copies, on one device. Rows have a halo on both sides."""

    def __init__(self, context: cu.Context, name: str, picture: Pixels) -> None:
        shapes = [(ROWS >> n, (COLUMNS >> n) // 2 + 2 * HALO) for n in range(LEVELS + 1)]
        with context:
            self.kernel, self.stream = cu.Module.from_file(KERNEL)["halve"], cu.Stream(name=name)
            self.levels = [cu.DeviceBuffer.pitched(shape, name=name) for shape in shapes]
        self.done = self.levels[0][:, HALO:-HALO].copy_from_async(picture, self.stream)

    def halve(self, n: int) -> None:
        (a, b), rows, columns = self.levels[n : n + 2], ROWS >> n + 1, COLUMNS >> n + 2
        sizes, grid = (a.strides[0], b, b.strides[0], rows, columns), (columns // 32 + 1, rows)
        self.done = self.kernel.launch(grid, BLOCK, cu.read(a), *sizes, stream=self.stream)


def halved(picture: Pixels) -> Pixels:
    """Return what the kernel computes, for a whole picture."""
    wide, total = np.pad(picture.astype(int), HALO, mode="edge"), np.array(128)
    for i, j in np.ndindex(5, 5):
        part = wide[i : i + len(picture) : 2, j : j + picture.shape[1] : 2]
        total = total + WEIGHTS[i] * WEIGHTS[j] * part
    return (total >> 8).astype("u1")


if __name__ == "__main__":
    other = cu.Device(1).context if cu.Device.count() > 1 else cu.Context.create(cu.Device(0))
    picture = np.random.default_rng(1).integers(0, 256, (ROWS, COLUMNS), "u1")
    left = Half(cu.Device(0).context, "left", picture[:, : COLUMNS // 2])
    right = Half(other, "right", picture[:, COLUMNS // 2 :])
    for n in range(LEVELS):
        a, b, ready = left.levels[n], right.levels[n], (left.done, right.done)
        left.stream.wait(ready[1])  # without this line, the first copy below is refused
        right.stream.wait(ready[0])
        a[:, -HALO:].copy_from_async(b[:, HALO : 2 * HALO], left.stream)
        b[:, :HALO].copy_from_async(a[:, -2 * HALO : -HALO], right.stream)
        for half, halo, edge in ((left, 0, HALO), (right, -HALO, -1 - HALO)):
            for i in range(HALO):  # outside of the picture, its outermost column
                half.levels[n][:, halo + i].copy_from_async(half.levels[n][:, edge], half.stream)
            half.halve(n)
    for n in range(1, LEVELS + 1):
        picture = halved(picture)
        found = [h.levels[n][:, HALO:-HALO].to_numpy(stream=h.stream) for h in (left, right)]
        print(*picture.shape, "as NumPy has it:", (np.concatenate(found, axis=1) == picture).all())
