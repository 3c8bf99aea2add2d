"""Blurs a picture and finds its edges, by two kernels at once: 09_image.py [PICTURE].

Needs Pillow: python -m pip install cudadrv[image]
"""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

import cudadrv as cu

Pixels = npt.NDArray[np.uint8]
BLOCK = (32, 8)


def drawn(rows: int = 240, columns: int = 320) -> Pixels:
    """Return circles in three colours, with sharp edges and a slow gradient."""
    y, x = np.mgrid[:rows, :columns]
    picture = np.stack([x * 255 // columns, y * 255 // rows, 0 * x + 96], axis=2)
    for colour in range(3):
        distance = np.hypot(x - columns * (colour + 1) / 4, y - rows / 2)
        picture[distance < rows / 3, colour] = 255
    return picture.astype("u1")


def blur_and_edges(picture: Pixels) -> tuple[Pixels, Pixels]:
    rows, columns = picture.shape[:2]
    module = cu.Module.from_file(Path(__file__).parent / "kernels" / "image.ptx")
    grid = (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]))
    source = cu.LockedBuffer.from_array(picture, name="picture")
    pixels = cu.DeviceBuffer(source.nbytes, name="pixels")
    streams = [cu.Stream(), cu.Stream()]
    arrived = pixels.copy_from_async(source, streams[0])
    # Both kernels may read the same pixels at once, and each writes its own buffer. Only the second
    # stream has to wait for the copy. The host waits at the end.
    streams[1].wait(arrived)
    results, copied = [], []
    sizes = {"blur": source.nbytes, "edges": rows * columns}
    for stream, (name, nbytes) in zip(streams, sizes.items(), strict=True):
        target = cu.DeviceBuffer(nbytes, name=name)
        module[name].launch(grid, BLOCK, cu.read(pixels), target, rows, columns, stream=stream)
        results.append(cu.LockedBuffer(nbytes, name=name))
        copied.append(results[-1].copy_from_async(target, stream))
    for token in copied:
        token.wait()
    blurred, edges = (result.to_numpy() for result in results)
    return blurred.reshape(rows, columns, 3), edges.reshape(rows, columns)


if __name__ == "__main__":
    path = Path(*sys.argv[1:])
    given = np.asarray(Image.open(path).convert("RGB")) if sys.argv[1:] else drawn()
    for suffix, array in zip(("blur", "edges"), blur_and_edges(given), strict=True):
        target = Path(f"{path.stem or 'drawn'}_{suffix}.png")  # a file in the working directory
        Image.fromarray(array).save(target)
        print(target)
