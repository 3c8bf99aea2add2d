"""numba compiles the kernels, and cudadrv has the memory, the copies and the order."""

from pathlib import Path

import numpy as np
from numba import cuda

import cudadrv as cu

cu.skip_file_prefixes(
    Path(cuda.__file__).parent
)  # messages name lines of this program, not numba's
COUNT, PARTS, THREADS = 1 << 14, 4, 256
PART = COUNT // PARTS


@cuda.jit
def collatz(steps, start):
    """How many steps each number takes down to 1."""
    i = cuda.grid(1)
    if i < steps.size:
        n = start + i
        count = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            count += 1
        steps[i] = count


theirs = cuda.stream()
compute, copies = cu.Stream.from_object(theirs), cu.Stream()
steps = [cu.DeviceBuffer(PART, "i4", name=f"steps {i}") for i in range(2)]
found = cu.LockedBuffer(COUNT, "i4", name="found")

for part in range(PARTS):
    buffer = steps[part % 2]
    start = part * PART
    compute.wait(copies)  # the copy of this half, two parts ago
    # numba uses the CUDA Array Interface, which a loan has, and not DLPack. sync=False: the host
    # need not wait for `theirs`, on which the kernel runs in order.
    array = cuda.as_cuda_array(buffer.lend(compute), sync=False)
    collatz[PART // THREADS, THREADS, theirs](array, start + 1)
    try:
        found[start : start + PART].copy_from_async(buffer, copies)
    except cu.BufferExportedError as error:
        if part == 0:
            print("\n".join(str(error).splitlines()[:2]))
    del array  # the end of the loan: the kernel counts as one use, on `compute`
    copies.wait(compute)
    found[start : start + PART].copy_from_async(buffer, copies)

copies.synchronize()
longest = int(np.argmax(found))
print(f"{longest + 1} takes {found[longest]} steps, the most of all up to {COUNT}")
assert (longest + 1, int(found[longest])) == (13255, 275)
