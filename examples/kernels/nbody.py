"""Bodies that attract each other: a loop of launches, prepared once."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Floats = npt.NDArray[np.float32]
TILE = 64


def nbody(bodies: Floats, velocities: Floats, seconds: float, steps: int) -> tuple[Floats, Floats]:
    """Return positions with masses (count, 4) and velocities (count, 4) after some steps."""
    count = len(bodies)
    kernel = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))["nbody"]
    with cu.Stream().scope() as stream:
        now = cu.DeviceBuffer.from_array(bodies, name="now")
        then = cu.DeviceBuffer(4 * count, "f4", name="then")
        speeds = cu.DeviceBuffer.from_array(velocities, name="speeds")
        # The arguments are checked and packed here, once for each direction; each launch in the
        # loop is checked for its order like any other.
        there, back = (
            kernel.prepare(-(-count // TILE), TILE, cu.read(a), b, speeds, count, seconds)
            for a, b in ((now, then), (then, now))
        )
        for step in range(steps):
            (back if step % 2 else there).launch(stream)
        results = np.empty_like(bodies), np.empty_like(velocities)
        (then if steps % 2 else now).copy_to(results[0])
        speeds.copy_to(results[1])
    return results


if __name__ == "__main__":
    bodies = np.array([[0, 0, 0, 1], [1, 0, 0, 1], [0, 1, 0, 1]], "f4")
    print(nbody(bodies, np.zeros_like(bodies), 0.01, 10)[0])
