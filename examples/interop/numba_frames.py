"""Frames go through two slots of a device: numba sends one while the kernel works on the other.

With `careless`, a wait is missing. The result may still be right, also on a GPU. This command
finds the mistake:

    python -m cudadrv explore -- python examples/interop/numba_frames.py careless
"""

import sys

import numpy as np
from numba import cuda

FRAMES, SLOTS, ITEMS = 4, 2, 128


@cuda.jit
def double(frame, result):
    i = cuda.grid(1)
    result[i] = 2 * frame[i]


def recorded(stream):
    event = cuda.event(timing=False)
    event.record(stream)
    return event


def doubled(frames, careless):
    upload, compute = cuda.stream(), cuda.stream()
    slots = [cuda.device_array(ITEMS, np.float32) for _ in range(SLOTS)]
    results = cuda.device_array((FRAMES, ITEMS), np.float32)
    read = [None] * SLOTS  # for each slot: when the kernel has read its frame
    for number in range(FRAMES):
        slot = number % SLOTS
        if read[slot] and not careless:
            read[slot].wait(upload)
        slots[slot].copy_to_device(frames[number], stream=upload)
        recorded(upload).wait(compute)
        double[1, ITEMS, compute](slots[slot], results[number])
        read[slot] = recorded(compute)
    compute.synchronize()
    return results.copy_to_host()


frames = cuda.pinned_array((FRAMES, ITEMS), np.float32)
frames[:] = np.arange(FRAMES * ITEMS).reshape(FRAMES, ITEMS)
wrong = np.flatnonzero((doubled(frames, "careless" in sys.argv) != 2 * frames).any(axis=1))
if wrong.size:
    sys.exit(f"frame {wrong[0]} is wrong")
print("all frames are right")
