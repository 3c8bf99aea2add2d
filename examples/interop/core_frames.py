"""Frames go through two slots of a device, with cuda.core. With `careless`, a wait is missing.

numba_frames.py has the same program, with the same mistake; neither uses cudadrv. This command
finds the mistake:

    python -m cudadrv explore -- python examples/interop/core_frames.py careless
"""

import sys

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, launch

FRAMES, SLOTS, ITEMS = 4, 2, 128
FRAME = 4 * ITEMS
TWICE = """extern "C" __global__ void twice(const float *frame, float *result) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    result[i] = 2 * frame[i];
}"""


def doubled(device, kernel, frames, results, careless):
    upload, compute = device.create_stream(), device.create_stream()
    slots = [device.allocate(FRAME, stream=upload) for _ in range(SLOTS)]
    upload.sync()
    read = [None] * SLOTS  # for each slot: when the kernel has read its frame
    for number in range(FRAMES):
        slot = number % SLOTS
        if read[slot] and not careless:
            upload.wait(read[slot])
        slots[slot].copy_from(frames[number], stream=upload)
        compute.wait(upload.record())
        config = LaunchConfig(grid=1, block=ITEMS)
        launch(compute, config, kernel, slots[slot], results[number])
        read[slot] = compute.record()
    compute.sync()


device = Device()
device.set_current()
program = Program(TWICE, code_type="c++")
kernel = program.compile("ptx").get_kernel("twice")
locked = LegacyPinnedMemoryResource()
frames, results = ([locked.allocate(FRAME) for _ in range(FRAMES)] for _ in range(2))
for number, frame in enumerate(frames):
    np.from_dlpack(frame).view(np.float32)[:] = number + 1
doubled(device, kernel, frames, results, "careless" in sys.argv)
for number, result in enumerate(results):
    if (np.from_dlpack(result).view(np.float32) != 2 * (number + 1)).any():
        sys.exit(f"frame {number} is wrong")
print("all frames are right")
