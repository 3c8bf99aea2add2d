"""Whether a pipeline overlaps: profiles with a single device buffer, and with two."""

import numpy as np

import cudadrv as cu

CHUNK, CHUNKS = 1 << 20, 8


def stream_through(buffers: int) -> cu.profile:
    """Copy chunks to the device and back, on a stream for each direction."""
    up, down = cu.Stream(name="up"), cu.Stream(name="down")
    frames = cu.LockedBuffer(CHUNK * CHUNKS, name="frames")
    results = cu.LockedBuffer(CHUNK * CHUNKS, name="results")
    frames[:] = np.arange(frames.count, dtype="u1")
    work = [cu.DeviceBuffer(CHUNK, name=f"work {i}") for i in range(buffers)]
    free: list[cu.Event | None] = [None] * buffers
    with cu.profile() as profile:
        for i, (given, result) in enumerate(
            zip(frames.chunks(CHUNK), results.chunks(CHUNK), strict=True)
        ):
            own = i % buffers
            if (event := free[own]) is not None:
                up.wait(event)
            work[own].copy_from_async(given, up)
            down.wait(up)
            work[own].copy_to_async(result, down)
            free[own] = down.record()
        down.synchronize()
    assert np.array_equal(results.to_numpy(), frames.to_numpy())
    return profile


if __name__ == "__main__":
    for buffers in (1, 2):
        profile = stream_through(buffers)
        print(f"{buffers} device buffer{'s' * (buffers > 1)}:")
        print(profile)
        assert profile.summary.copied == 2 * CHUNK * CHUNKS
