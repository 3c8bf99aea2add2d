"""Double buffering: the host fills one half of a buffer while the other half is in flight."""

import numpy as np

import cudadrv as cu

CHUNK = 1 << 16
CHUNKS = 20

source = cu.LockedBuffer(2 * CHUNK, "u4", name="source")
result = cu.LockedBuffer(2 * CHUNK, "u4", name="result")
halves = list(zip(source.chunks(CHUNK), result.chunks(CHUNK), strict=True))
streams = [cu.Stream(), cu.Stream()]
works = [cu.DeviceBuffer(CHUNK, "u4", name="work") for _ in streams]
arrived: list[cu.Token | None] = [None, None]
checked = 0


def finish(turn: int) -> None:
    """Wait for the copies of this half, and check the result."""
    global checked
    token = arrived[turn % 2]
    if token is not None:
        token.wait()
        # Without the wait above, this read would raise an error, and so would the write below.
        with halves[turn % 2][1].read() as array:
            assert array[0] == checked * CHUNK
            assert np.all(np.diff(array) == 1)
        checked += 1


for chunk in range(CHUNKS):
    half, back = halves[chunk % 2]
    stream, work = streams[chunk % 2], works[chunk % 2]
    finish(chunk)
    with half.write() as array:
        array[:] = np.arange(chunk * CHUNK, (chunk + 1) * CHUNK, dtype="u4")
    work.copy_from_async(half, stream)
    arrived[chunk % 2] = back.copy_from_async(work, stream)

finish(CHUNKS)
finish(CHUNKS + 1)
assert checked == CHUNKS
print(f"{checked} chunks of {CHUNK} numbers went through, each as it should be")
