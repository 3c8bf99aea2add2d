"""X-rays of a volume that changes: rays march through a 3-D texture.

Two arrays take turns. While a kernel reads one of them through its texture, the next volume is
copied into the other one. A copy into the array that is being read would be refused.
"""

from math import cos, pi, sin
from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

SIZE, FRAMES, BLOCK = 32, 6, (16, 16)
GRID = (SIZE // BLOCK[0], SIZE // BLOCK[1])
Volume = npt.NDArray[np.float32]

march = cu.Module.from_file(Path(__file__).parent / "kernels" / "march.ptx")["march"]


def ball(radius: float) -> Volume:
    """A ball in the middle of a volume, which is thin at its surface."""
    z, y, x = np.indices((SIZE,) * 3) + 0.5 - SIZE / 2
    return np.clip((radius - np.sqrt(x * x + y * y + z * z)) / 4, 0, 1).astype("f4")


loading, drawing = cu.Stream(name="loading"), cu.Stream(name="drawing")
arrays = [cu.Array((SIZE,) * 3, "f4", name=f"volume {k}") for k in range(2)]
textures = [cu.Texture(array, filter="linear", address="border") for array in arrays]
images = cu.DeviceBuffer.zeros(FRAMES * SIZE * SIZE, "f4", name="images")
images = images.reshape(FRAMES, SIZE, SIZE)
drawn: list[cu.Token | None] = [None, None]

for number in range(FRAMES):
    array, texture = arrays[number % 2], textures[number % 2]
    if (last := drawn[number % 2]) is not None:
        loading.wait(last)  # the launch that still reads this array
    token = array.copy_from_async(ball(4 + number), loading)
    drawing.wait(token)
    angle = number * pi / FRAMES
    arguments = (texture, images[number], SIZE, SIZE, cos(angle), sin(angle))
    drawn[number % 2] = march.launch(GRID, BLOCK, *arguments, stream=drawing)

try:  # nothing orders this copy after the last launch
    arrays[(FRAMES - 1) % 2][:4].copy_from_async(np.zeros((4, SIZE, SIZE), "f4"), loading)
except cu.BufferBorrowedError as error:
    print(f"{error}\n")

drawing.synchronize()
found = images.to_numpy()
for number in range(FRAMES):
    # From any angle, a ball looks the same.
    expected = ball(4 + number).sum(axis=0)
    assert abs(found[number] - expected).max() < 0.05 * expected.max(), number

SHADES = " .:-=+*#%@"
for row in found[-1][::3]:
    print("".join(SHADES[min(int(value), 9)] for value in row[::2]))
